"""From the first call to the store: what is durable, what is refused, what must never be written."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from httpx import HTTPError  # openai 2 lets through what breaks a stream
from openai import APIConnectionError, OpenAI

import trajkit
from tests import warm
from tests.matrix import daily
from trajkit.errors import MissingExtra, StoreError
from trajkit.schema import Outcome

ASK = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


def journal_of(store: Path) -> Path:
    return store.with_name(f"{store.name}.journal")


def script(url: str, store: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run a program of a user in a process of its own."""
    head = f"""
        import os, signal
        import trajkit
        from openai import OpenAI
        client = OpenAI(base_url={url!r}, api_key="unused", max_retries=0)
        ask = dict(model="m", messages=[dict(role="user", content="go")])
        recorder = trajkit.Recorder(client, store={str(store)!r})
        def call():
            return recorder.client.chat.completions.create(**ask)
    """
    folder = store.parent.with_name(f"{store.parent.name}-program")
    folder.mkdir()
    (folder / "program.py").write_text(textwrap.dedent(head) + textwrap.dedent(body))
    return warm.trajkit([], folder, dict(os.environ), module="program")


def test_calls_outside_any_episode_are_episodes_of_their_own(client, store, episodes):
    with trajkit.Recorder(client, store=store) as recorder:
        recorder.client.chat.completions.create(**ASK)
        recorder.client.chat.completions.create(**ASK)
        assert recorder.counts.n_outside == 2
    for episode in episodes():
        assert (episode.n_steps, episode.purpose, episode.outcome) == (1, "unknown", "unknown")
        assert episode.origin == {"outside": True}


def test_the_store_says_where_it_comes_from(client, server, store):
    recorder = trajkit.Recorder(client, store=str(store))
    recorder.client.chat.completions.create(**ASK)
    manifest = recorder.close()
    assert recorder.close() is manifest
    assert manifest == trajkit.open_dataset(store).store.manifest
    assert (manifest.kind, manifest.source) == (
        "recorder",
        {"kind": "recorder", "services": [server.url.removesuffix("/v1")]},
    )
    assert manifest.lineage[0].verb == "record"
    assert not journal_of(store).exists()


def test_no_secret_reaches_the_journal_or_the_store(client, server, wire, store, key):
    secret = "s3cret-of-a-tool"
    server.reply = lambda request: wire.Answer(
        wire.completion("yes") if "messages" in request else wire.response(wire.text_message("yes"))
    )
    tools = [
        {
            "type": "mcp",
            "server_label": "files",
            "server_url": "https://example.org",
            "authorization": secret,
            "headers": {"X-Key": secret},
            "require_approval": "never",
        },
        {"type": "function", "name": "send", "parameters": {"properties": {"headers": {"type": "object"}}}},
    ]
    recorder = trajkit.Recorder(client, store=store)
    made = recorder.client.with_options(default_headers={"X-Own": secret})
    made.responses.create(model="m", input='what is "headers"?', tools=tools)
    made.chat.completions.create(**ASK, extra_body={"api_key": secret}, extra_headers={"X-Other": secret})
    told = [{"role": "user", "content": f"my key is {key}"}]
    made.chat.completions.create(model="m", messages=told)
    assert server.requests[0]["tools"][0]["authorization"] == secret  # what is sent is untouched
    assert server.requests[2]["messages"] == told
    journal = journal_of(store).read_bytes()
    recorder.close()
    rows = trajkit.open_dataset(store).arrow("steps").read_all().to_pylist()
    written = journal + str(rows).encode() + (store / "manifest.json").read_bytes()
    assert b"api.openai" not in written
    for word in (secret, key):
        assert word.encode() not in written
    first = next(row for row in rows if "mcp" in (row["tools"] or ""))
    assert '"headers":{"type":"object"}' in first["tools"]
    assert "my key is ***" in str(rows)


@pytest.mark.parametrize("size", daily([1, 5, 100], 2))
@pytest.mark.parametrize("key", ['sk-a"b\\c-0123456789', "sk-short-1"])
def test_an_answer_that_repeats_the_key_is_kept_without_it_also_where_it_comes_in_pieces(
    server, wire, store, episodes, key, size
):
    echo = f"your key is {key}, is it?"
    pieces = [echo[at : at + size] for at in range(0, len(echo), size)]
    server.script = [
        wire.Answer(wire.completion(json.dumps({"said": echo}), calls=[("c", "look", json.dumps([echo]))])),
        wire.Answer(
            events=[
                *(wire.chunk({"content": piece}) for piece in pieces),
                wire.chunk({}, finish_reason="stop"),
            ]
        ),
        wire.Answer(events=[wire.chunk({"content": piece}) for piece in pieces], cut=True),
        wire.Answer(events=wire.response_events(wire.response(wire.text_message(echo)))),
    ]
    with OpenAI(base_url=server.url, api_key=key, max_retries=0) as client:
        recorder = trajkit.Recorder(client, store=store)
        with recorder.episode(task="t"):
            recorder.client.chat.completions.create(**ASK)
            parts = [
                one.choices[0].delta.content
                for one in recorder.client.chat.completions.create(**ASK, stream=True)
            ]
            assert "".join(part or "" for part in parts) == echo  # what the caller gets is untouched
            with contextlib.suppress(APIConnectionError, HTTPError):
                list(recorder.client.chat.completions.create(**ASK, stream=True))
            list(recorder.client.responses.create(model="m", input="hi", stream=True))
        journal = journal_of(store).read_text()
        recorder.close()
    assert recorder.counts.n_hidden == 4
    (episode,) = episodes()
    told, streamed, cut, answered = (step.completion.text for step in episode.steps)
    assert json.loads(told) == {"said": "your key is ***, is it?"}
    assert (streamed, cut, answered) == ("your key is ***, is it?",) * 3
    assert [step.mask_reason for step in episode.steps] == [None, None, "answer broken off", None]
    written = journal + str(trajkit.open_dataset(store).arrow("steps").read_all().to_pylist())
    for form in (key, json.dumps(key)[1:-1], json.dumps(json.dumps(key))[3:-3], repr(key)[1:-1]):
        assert form not in written
    manifest = json.loads((store / "manifest.json").read_text())
    assert manifest["lineage"][0]["arguments"] == {"n_calls_with_hidden": 4}


def test_a_store_that_exists_or_is_being_recorded_is_refused(client, store):
    with trajkit.Recorder(client, store=store):
        with pytest.raises(StoreError, match=r"is being recorded: another recorder writes .*store\.journal"):
            trajkit.Recorder(client, store=store)
        with pytest.raises(StoreError, match="is being recorded"):
            trajkit.Recorder.recover(store)
    with pytest.raises(StoreError, match="store exists already"):
        trajkit.Recorder(client, store=store)
    assert not journal_of(store).exists()
    with pytest.raises(StoreError, match="exists already"):
        trajkit.Recorder.recover(store)
    with pytest.raises(StoreError, match="there is no journal"):
        trajkit.Recorder.recover(store.with_name("other"))


@pytest.mark.full
def test_a_store_for_each_day_is_written_when_the_day_is_over(server, store):
    body = """
        import pathlib, time
        import trajkit.rollouts.recorder.recorder as module
        real, days = time.time_ns, 0
        time.time_ns = lambda: real() + days * 86_400_000_000_000
        names = []
        def today():
            from trajkit._core.ids import time_of, uuid7
            names.append(f"{time_of(uuid7()):%Y-%m-%d}")
            print(names[-1])
        def is_there(name):
            return (pathlib.Path(recorder._log.store).parent / name / "manifest.json").exists()
        today()
        with recorder.episode(task="first") as first:
            call()
        with recorder.episode(task="past midnight") as late:
            call()
            days = 1
            today()
            with recorder.episode(task="second") as second:
                call()
            call()
            assert not is_there(names[0])
            first.metric("success", True)  # the day is over, and its store is not written
        second.reward(0.5)
        deadline = time.monotonic() + 40
        while not is_there(names[0]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        days = 2
        call()
        late.metric("success", False)  # hours later: the store is written
        late.reward(2.0)
        recorder.close()
        second.reward(0.25)
        assert recorder.counts.fault is None, recorder.counts
    """
    done = script(server.url, store.with_name("{date}"), body)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split()
    names = {path.name for path in store.parent.iterdir()}
    assert names >= {first, f"{first}.late", second, f"{second}.late"}
    assert not [name for name in names if name.endswith(".journal")]
    found = {
        name: {one.task: (one.n_steps, one.metrics) for one in trajkit.open_dataset(store.with_name(name))}
        for name in (first, second)
    }
    assert found == {
        first: {"first": (1, {"success": True}), "past midnight": (2, {})},
        second: {"second": (1, {})},
    }
    (third,) = [name for name in names if name > second and "." not in name]
    assert len(trajkit.open_dataset(store.with_name(third))) == 1

    manifest = trajkit.Recorder.recover(store.with_name(first), so_far=store.with_name("whole"))
    assert [entry.verb for entry in manifest.lineage] == ["record", "feedback"]
    assert manifest.lineage[1].arguments == {"n_notes": 2, "n_of_no_step": 0}
    assert (
        manifest.lineage[1].parent_digest
        == trajkit.open_dataset(store.with_name(first)).store.manifest.digest
    )
    whole = {one.task: one for one in trajkit.open_dataset(store.with_name("whole"))}
    assert (whole["first"].outcome, whole["past midnight"].outcome) == (Outcome.SUCCESS, Outcome.FAILURE)
    assert [step.reward for step in whole["past midnight"].steps] == [None, 2.0]
    trajkit.Recorder.recover(store.with_name(second), so_far=store.with_name("more"))
    (more,) = trajkit.open_dataset(store.with_name("more"))
    assert more.total_reward == 0.75  # a reward before the day was over and one after the end add up


def test_a_service_that_begins_again_within_a_day_has_another_store(client, store):
    for _ in range(2):
        with trajkit.Recorder(client, store=store.with_name("calls-{date}")) as recorder:
            recorder.client.chat.completions.create(**ASK)
    first, second = sorted(path.name for path in store.parent.iterdir())
    assert second == f"{first}-2"
    assert [len(trajkit.open_dataset(store.with_name(name))) for name in (first, second)] == [1, 1]


def test_feedback_after_the_end_is_kept_beside_the_store(client, store, episodes):
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode(task="t") as e:
        recorder.client.chat.completions.create(**ASK)
        e.metric("score", 0.25)
    assert episodes()[0].outcome == Outcome.UNKNOWN
    with pytest.raises(StoreError, match=r"store\.late cannot be read"):
        trajkit.Recorder.recover(store, so_far=store.with_name("none"))
    e.outcome("success")
    e.comment("solved", on_step=True)
    e.metric("score", 0.75)
    assert recorder.counts.n_lost_notes == 0
    trajkit.Recorder.recover(store, so_far=store.with_name("whole"))
    (whole,) = trajkit.open_dataset(store.with_name("whole"))
    assert (whole.outcome, whole.metrics) == (Outcome.SUCCESS, {"score": 0.75})
    assert [(one.metric_name, one.value) for one in whole.feedback] == [
        ("score", 0.25),
        ("comment", "solved"),
        ("score", 0.75),
    ]


def test_what_a_live_recorder_has_finished_is_written_beside_it(client, server, wire, store, episodes):
    server.reply = lambda request: wire.Answer(wire.completion(f"answer {len(server.requests)}"))
    early = store.with_name("early")
    with trajkit.Recorder(client, store=store) as recorder:
        with recorder.episode(task="ended") as ended:
            recorder.client.chat.completions.create(**ASK)
        recorder.client.chat.completions.create(**ASK)
        ended.metric("success", True)
        with recorder.episode(task="open") as e:
            recorder.client.chat.completions.create(**ASK)
            manifest = trajkit.Recorder.recover(store, so_far=early)
            with pytest.raises(StoreError, match="early exists already"):
                trajkit.Recorder.recover(store, so_far=early)
            e.reward(1.0)
        ended.comment("hours later")
    (entry,) = manifest.lineage
    assert [(one.reason, one.n_episodes) for one in entry.left] == [("still open", 1)]
    assert (entry.n_episodes_in, entry.n_episodes_out) == (3, 2)
    first, outside = sorted(trajkit.open_dataset(early), key=lambda one: one.task or "none")
    assert (first.task, first.outcome, first.metrics) == ("ended", Outcome.SUCCESS, {"success": True})
    assert outside.origin == {"outside": True}
    assert [one.task for one in episodes()] == ["ended", None, "open"]  # nothing is missing in the whole
    with pytest.raises(StoreError, match=r"other\.journal cannot be read"):
        trajkit.Recorder.recover(store.with_name("other"), so_far=store.with_name("more"))


def test_a_killed_process_loses_at_most_the_running_call(client, server, wire, store, episodes):
    server.reply = lambda request: wire.Answer(wire.completion(f"answer {len(server.requests)}"))
    body = """
        with recorder.episode(task="whole") as e:
            call()
            e.reward(1.0)
            e.metric("success", True)
        with recorder.episode(task="half") as e:
            call()
            call()
            e.reward(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    assert script(server.url, store, body).returncode == -9
    with pytest.raises(StoreError, match=r"was not closed \(trajkit\.Recorder\.recover\("):
        trajkit.Recorder(client, store=store)
    with journal_of(store).open("ab") as file:  # the record that it was writing
        file.write(b'{"kind":"call","sizes":[100,10]}\nhalf of')
    manifest = trajkit.Recorder.recover(store)
    assert not journal_of(store).exists()
    assert manifest.counts.n_steps == 3
    assert [one.reason for one in manifest.lineage[0].left] == ["half written when the process ended"]
    whole, half = episodes()
    assert (whole.task, whole.outcome, whole.steps[0].reward) == ("whole", Outcome.SUCCESS, 1.0)
    assert (half.task, half.outcome) == ("half", Outcome.ERROR)
    assert half.origin["error"] == "the recording ended before the episode did"
    assert [step.reward for step in half.steps] == [None, 0.5]
    assert [step.completion.text for step in half.steps] == ["answer 2", "answer 3"]


def test_a_journal_that_is_cut_anywhere_is_read_as_far_as_it_is_whole(client, store, tmp_path):
    recorder = trajkit.Recorder(client, store=store)
    with recorder.episode(task="t") as e:
        for _ in range(3):
            recorder.client.chat.completions.create(**ASK)
            e.reward(1.0)
    whole = journal_of(store).read_bytes()
    recorder.close()
    n_first = whole.index(b"\n") + 2
    steps = []
    for number, length in enumerate(range(len(whole), n_first, -max(1, len(whole) // 9))):
        goal = tmp_path / f"cut {number}"
        journal_of(goal).write_bytes(whole[:length])
        steps.append(trajkit.Recorder.recover(goal).counts.n_steps)
    assert steps[0] == 3
    assert steps == sorted(steps, reverse=True)
    assert set(steps) >= {0, 1, 2, 3}


def test_a_journal_that_is_none_or_newer_is_refused(store):
    journal_of(store).write_text("my diary\n")
    with pytest.raises(StoreError, match="is not a recorder's journal"):
        trajkit.Recorder.recover(store)
    journal_of(store).write_text('{"kind":"recorder","version":9,"sizes":[]}\n\n')
    with pytest.raises(StoreError, match="written by a newer trajkit"):
        trajkit.Recorder.recover(store)


def test_a_store_that_cannot_be_written_leaves_the_journal(client, store, episodes):
    recorder = trajkit.Recorder(client, store=store)
    recorder.client.chat.completions.create(**ASK)
    store.mkdir()  # it is in the way
    with pytest.raises(StoreError, match=r"exists already \(.*trajkit\.Recorder\.recover"):
        recorder.close()
    store.rmdir()
    assert trajkit.Recorder.recover(store).counts.n_steps == 1


def test_the_first_error_is_the_one_that_is_seen(client, store):
    def play() -> None:
        with trajkit.Recorder(client, store=store) as recorder:
            recorder.client.chat.completions.create(**ASK)
            store.mkdir()
            raise ZeroDivisionError

    with pytest.warns(UserWarning, match="could not be written"), pytest.raises(ZeroDivisionError):
        play()
    store.rmdir()
    assert trajkit.Recorder.recover(store).counts.n_steps == 1


def test_a_program_that_forgets_to_close_has_its_store_and_a_warning(server, store, episodes):
    done = script(server.url, store, "with recorder.episode(task='t'):\n    call()\nraise SystemExit(3)")
    assert done.returncode == 3
    assert "was not closed: its store was written when the program ended" in done.stderr
    assert episodes()[0].task == "t"
    assert not journal_of(store).exists()


@pytest.mark.full
def test_a_program_that_forgets_to_close_is_told_when_its_store_cannot_be_written(server, store):
    done = script(server.url, store, f"call()\nos.mkdir({str(store)!r})")
    assert done.returncode == 0
    assert f"trajkit.Recorder.recover({str(store)!r}) writes its store from" in done.stderr
    store.rmdir()
    assert trajkit.Recorder.recover(store).counts.n_steps == 1


def test_a_program_that_records_nothing_leaves_nothing(server, store):
    done = script(server.url, store, "pass")
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(store.parent.iterdir())


def test_calls_after_the_end_go_through_and_are_counted(client, store):
    recorder = trajkit.Recorder(client, store=store)
    recorder.close()
    with pytest.warns(UserWarning, match="could not record a call: ValueError: the recorder is closed"):
        made = recorder.client.chat.completions.create(**ASK)
    assert made.choices[0].message.content == "yes"
    assert recorder.counts.n_lost_calls == 1
    assert len(trajkit.open_dataset(store)) == 0


def test_an_episode_that_is_open_at_the_end_is_an_error(client, store, episodes):
    recorder = trajkit.Recorder(client, store=store)
    warned = pytest.warns(UserWarning, match="could not record a note: ValueError: the recorder is closed")
    with warned, recorder.episode() as episode:
        recorder.client.chat.completions.create(**ASK)
        recorder.close()
        episode.reward(1.0)  # feedback is kept, the end is not
    assert recorder.counts.n_lost_notes == 1
    assert store.with_name("store.late").exists()
    assert episodes()[0].outcome == Outcome.ERROR


def test_feedback_that_comes_after_the_episode_ended_is_in_the_store(client, server, wire, store, episodes):
    with trajkit.Recorder(client, store=store) as recorder:
        with recorder.episode(task="chat") as e:
            server.script = [wire.Answer(wire.completion("yes"))]
            recorder.client.chat.completions.create(**ASK)
        with recorder.episode(task="other"):
            server.script = [wire.Answer(wire.completion("no"))]
            recorder.client.chat.completions.create(**ASK)
        e.metric("success", True)
        e.reward(1.0)
        e.comment("the customer came back and said thanks")
    first, second = episodes()
    assert (first.metrics, first.total_reward, first.outcome) == ({"success": True}, 1.0, Outcome.SUCCESS)
    assert [one.metric_name for one in first.feedback] == ["success", "comment"]
    assert (second.metrics, second.outcome) == ({}, Outcome.UNKNOWN)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_fork_does_not_write_into_the_journal_of_its_parent(server, store, episodes):
    body = """
        import warnings
        with recorder.episode():
            call()
            child = os.fork()
            if child == 0:
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    assert call().choices[0].message.content == "yes"
                raise SystemExit(0 if "was forked" in str(said[0].message) else 1)
            _, status = os.waitpid(child, 0)
            call()
        recorder.close()
        raise SystemExit(os.waitstatus_to_exitcode(status))
    """
    done = script(server.url, store, body)
    assert done.returncode == 0, done.stderr
    assert episodes()[0].n_steps == 2


def test_what_is_not_understood_is_kept_as_it_came(client, server, wire, store, episodes):
    half = '{"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "x \\ud83d"}}]}'
    server.script = [
        wire.Answer("<html>proxy</html>"),
        wire.Answer({"id": "1", "choices": [], "model": "m"}),
        wire.Answer(wire.completion("fine", usage={"prompt_tokens": -1})),
        wire.Answer(half),
    ]
    with trajkit.Recorder(client, store=store) as recorder, recorder.episode():
        made = recorder.client.chat.completions.with_raw_response
        for _ in range(4):
            made.create(**ASK)
    page, empty, negative, broken = episodes()[0].steps
    assert page.completion.content[0].data == {"text": "<html>proxy</html>"}
    assert empty.completion.content[0].data["choices"] == []
    assert negative.completion.content[0].data["usage"] == {"prompt_tokens": -1}
    for step in (page, empty, negative):
        assert step.messages[0].text == "go"
        assert (step.loss_weight, step.mask_reason) == (0.0, "answer not understood")
    assert (broken.completion.text, broken.mask_reason) == ("x \ufffd", None)


def test_without_the_package_openai_it_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"pip install 'trajkit\[openai\]'"):
        trajkit.Recorder(object(), store=store)
    assert not list(store.parent.iterdir())


def test_a_disk_that_is_full_at_the_beginning_is_named(client, store, full_disk):
    named = pytest.raises(StoreError, match=r"store\.journal cannot be written: No space left on device")
    with full_disk(), named:
        trajkit.Recorder(client, store=store)
    assert not list(store.parent.iterdir())


def test_an_episode_whose_beginning_was_lost_keeps_its_calls(client, store, episodes, full_disk):
    recorder = trajkit.Recorder(client, store=store)
    episode = recorder.episode(task="lost")
    with full_disk(), pytest.warns(UserWarning, match="could not record a note"):
        episode.__enter__()
    recorder.client.chat.completions.create(**ASK)
    recorder.client.chat.completions.create(**ASK)
    episode.__exit__(None, None, None)
    with pytest.warns(UserWarning, match="but incomplete"):
        recorder.close()
    (found,) = episodes()
    assert (found.task, found.n_steps, found.origin) == (None, 2, None)


def test_half_a_record_is_taken_back_so_that_the_rest_can_be_read(client, store, episodes, monkeypatch):
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) > 40 and bytes(data[:14]) == b'{"kind":"call"':
            return write(file, data[:40])
        raise OSError(28, "No space left on device")

    recorder = trajkit.Recorder(client, store=store)
    with recorder.episode(task="t"):
        recorder.client.chat.completions.create(**ASK)
        with monkeypatch.context() as broken:
            broken.setattr("trajkit.rollouts.recorder.journal.os.write", half)
            with pytest.warns(UserWarning, match="No space left"):
                recorder.client.chat.completions.create(**ASK)
        recorder.client.chat.completions.create(**ASK)
    with pytest.warns(UserWarning, match="but incomplete"):
        recorder.close()
    (episode,) = episodes()
    assert (episode.task, episode.n_steps, episode.outcome) == ("t", 2, Outcome.UNKNOWN)


def test_many_threads_with_streams_lose_nothing(client, server, wire, store, episodes):
    events = [wire.chunk({"role": "assistant", "content": "x"}), wire.chunk({}, finish_reason="stop")]
    server.reply = lambda request: wire.Answer(events=[*events, "data: [DONE]\n\n"])
    with trajkit.Recorder(client, store=store) as recorder:

        def play(number: int) -> None:
            with recorder.episode(task=str(number)) as e:
                for turn in range(4):
                    told = {"role": "user", "content": f"{number}.{turn}"}
                    stream = recorder.client.chat.completions.create(model="m", messages=[told], stream=True)
                    if turn % 2:
                        next(stream)
                        del stream  # ends when the memory is tidied up, in the middle of anything
                        e.reward(turn)
                    else:
                        list(stream)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(play, range(16)))
    found = episodes()
    assert len(found) == 16
    for episode in found:
        assert [step.messages[0].text for step in episode.steps] == [f"{episode.task}.{n}" for n in range(4)]
        assert [step.reward for step in episode.steps] == [None, 1.0, None, 3.0]


@pytest.mark.full
def test_a_recorder_for_each_day_keeps_an_episode_that_runs_past_midnight(client, server, wire, store):
    server.reply = lambda request: wire.Answer(wire.completion("yes"))
    yesterday = trajkit.Recorder(client, store=store.with_name("2026-11-24"))
    with yesterday.episode(task="late") as late:
        yesterday.client.chat.completions.create(**ASK)
        today = trajkit.Recorder(client, store=store.with_name("2026-11-25"))
        with today.episode(task="early"):
            today.client.chat.completions.create(**ASK)
        yesterday.client.chat.completions.create(**ASK)
    late.metric("solved", True)  # hours later
    yesterday.close()
    today.client.chat.completions.create(**ASK)
    today.close()
    found = {
        name: sorted(
            (episode.task or "outside", episode.n_steps, episode.metrics)
            for episode in trajkit.open_dataset(store.with_name(name))
        )
        for name in ("2026-11-24", "2026-11-25")
    }
    assert found == {
        "2026-11-24": [("late", 2, {"solved": True})],
        "2026-11-25": [("early", 1, {}), ("outside", 1, {})],
    }


@pytest.mark.full
def test_processes_of_their_own_record_at_once(server, wire, tmp_path):
    """As under pytest-xdist: each worker has a store of its own."""
    server.reply = lambda request: wire.Answer(wire.completion("yes"))
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_record, args=(server.url, tmp_path / f"gw{number}")) for number in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for number in range(2):
        assert trajkit.open_dataset(tmp_path / f"gw{number}").n_steps == 1


def _record(url: str, store: Path) -> None:
    with OpenAI(base_url=url, api_key="unused") as client, trajkit.Recorder(client, store=store) as recorder:
        recorder.client.chat.completions.create(**ASK)
