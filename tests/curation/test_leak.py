from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trajkit
from tests.matrix import daily, portions
from trajkit._core.settings import Reservation
from trajkit.cli.main import run
from trajkit.curation.leaks.leak import leak
from trajkit.curation.leaks.report import LeakKind, LeakReport
from trajkit.environments import make
from trajkit.errors import DataError, QueryError, RequestError, StoreError
from trajkit.schema import Episode, Message, Transition, kept, message
from trajkit.store.reader import Store, open_store

Write = Callable[..., Path]
UNSEEDED = {"seed": None}


def a_step(step_index: int, text: str, answer: str = "go forward", **fields: Any) -> Transition:
    return Transition(
        step_index=step_index,
        messages=(message("system", "Play."), message("user", text)),
        completion=message("assistant", answer),
        observation=text,
        **fields,
    )


def an_episode(name: str, *, texts: Iterable[str] | None = None, **fields: Any) -> Episode:
    told = [f"{name} sees wall {n}" for n in range(2)] if texts is None else list(texts)
    values: dict[str, Any] = {
        "source": "test",
        "env_id": "world",
        "task": "goto",
        "seed": int.from_bytes(name.encode()[-6:], "big"),
        "initial_state_hash": f"hash of {name}",
        "steps": tuple(a_step(index, text) for index, text in enumerate(told)),
    }
    return Episode(episode_id=name, **{**values, **fields})


def blocking(report: LeakReport) -> dict[str, int]:
    return {finding.kind.value: finding.n_blocking for finding in report.blocking}


def counted(report: LeakReport) -> dict[str, int]:
    return {finding.kind.value: finding.n for finding in report.findings}


def compared(write: Write, train: list[Episode], evaluation: list[Episode], **options: Any) -> LeakReport:
    return leak(write(train), write(evaluation), **{"reservations": (), **options})


PLANTS: dict[str, tuple[Callable[[Episode], dict[str, Any]], dict[str, Any], set[str]]] = {
    # what the planted episode has of one on the other side; what both are; which kinds must block
    "episode_id": (lambda e: {"episode_id": e.episode_id}, {}, {"episode_id"}),
    "world": (lambda e: {"env_id": e.env_id, "task": e.task, "seed": e.seed}, {}, {"world"}),
    "initial_state": (lambda e: {"initial_state_hash": e.initial_state_hash}, {}, {"initial_state"}),
    "prompt": (
        lambda e: {"steps": (a_step(0, e.steps[1].observation or "", "pick up"),)},
        UNSEEDED,
        {"prompt"},
    ),
    "near_prompt": (
        lambda e: {"steps": (a_step(0, f"  {(e.steps[1].observation or '').upper()}...\n", "pick up"),)},
        UNSEEDED,
        {"near_prompt"},
    ),
    "prompt_answer": (
        lambda e: {"steps": (a_step(0, e.steps[1].observation or "", "Go, forward!"),)},
        UNSEEDED,
        {"prompt", "prompt_answer"},
    ),
    "first_text": (
        lambda e: {
            "origin": {"mission": "Fetch it"},
            "steps": (Transition(step_index=0, observation=f"{e.steps[0].observation}!"),),
        },
        {**UNSEEDED, "origin": {"mission": "fetch it."}},
        {"first_text"},
    ),
}


def planted() -> tuple[list[Episode], list[Episode]]:
    """Ten episodes of each side, of which those at the place of a plant share it."""
    train = [an_episode(f"t{n}", **UNSEEDED) for n in range(10)]
    evaluation = [an_episode(f"e{n}", **UNSEEDED) for n in range(10)]
    for number, (plant, both, _) in enumerate(PLANTS.values()):
        evaluation[number] = an_episode(f"e{number}", **both)
        train[number] = an_episode(f"t{number}", **both).model_copy(update=plant(evaluation[number]))
    return train, evaluation


@pytest.mark.parametrize("n_steps", [10_000, 3])
def test_every_planted_leak_is_found_and_nothing_else(
    write: Write, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajkit.curation.leaks.leak._STEPS_PER_SPAN", n_steps)
    train, evaluation = planted()
    report = compared(write, train, evaluation)
    places: dict[str, list[int]] = {}
    for place, (_, _, kinds) in enumerate(PLANTS.values()):
        for kind in kinds:
            places.setdefault(kind, []).append(place)
    assert blocking(report) == {kind: len(some) for kind, some in places.items()}
    for finding in report.findings:
        assert {(one.train_episode, one.eval_episode) for one in finding.examples} == {
            (train[place].episode_id, evaluation[place].episode_id) for place in places[finding.kind]
        }


def reads_like(messages: Iterable[Message]) -> str:
    texts = (f"{one.role} {' '.join(block.text for block in one.content)}" for one in messages)  # type: ignore[union-attr]
    return "\n".join(re.sub(r"[^\w+]+", " ", text.lower()).strip() for text in texts)


_words = st.sampled_from(["Go!", "go", " GO  on", "stop", "a+b", "a-b"])
_turns = st.lists(st.tuples(_words, _words, st.booleans()), min_size=1, max_size=4)


def a_conversation(name: str, turns: list[tuple[str, str, bool]]) -> Episode:
    """Each turn goes on with the conversation, or begins another."""
    steps: list[Transition] = []
    before: tuple[Message, ...] = ()
    answer: Message | None = None
    for index, (said, answered, goes_on) in enumerate(turns):
        past = (*before, answer) if goes_on and answer is not None else ()
        prompt = (*past, message("user", said))
        n_kept = kept(before, answer, prompt)
        answer = message("assistant", answered)
        before = prompt
        steps.append(
            Transition(step_index=index, n_prompt_kept=n_kept, messages=prompt[n_kept:], completion=answer)
        )
    return an_episode(name, seed=None, initial_state_hash=None, steps=tuple(steps))


@pytest.mark.full
@portions(5)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(train=st.lists(_turns, min_size=1, max_size=3), evaluation=st.lists(_turns, min_size=1, max_size=3))
def test_shared_texts_are_those_of_whole_prompts_put_together_in_plain_python(
    portion: int,
    write: Write,
    train: list[list[tuple[str, str, bool]]],
    evaluation: list[list[tuple[str, str, bool]]],
) -> None:
    sides = [
        [a_conversation(f"{side}{number}", turns) for number, turns in enumerate(some)]
        for side, some in (("t", train), ("e", evaluation))
    ]
    prompts, pairs = [], []
    for side in sides:
        steps = [
            (prompt, step.completion)
            for episode in side
            for prompt, step in zip(episode.prompts(), episode.steps, strict=True)
            if prompt is not None and step.completion is not None
        ]
        prompts.append({prompt for prompt, _ in steps})
        pairs.append({f"{reads_like(prompt)}|{reads_like([answer])}" for prompt, answer in steps})
    near_train = {reads_like(prompt) for prompt in prompts[0]}
    near = {reads_like(prompt) for prompt in prompts[1] - prompts[0]} & near_train
    expected = {
        "prompt": len(prompts[0] & prompts[1]),
        "near_prompt": len(near),
        "prompt_answer": len(pairs[0] & pairs[1]),
    }
    report = compared(write, *sides, near=None)
    assert counted(report) == {kind: n for kind, n in expected.items() if n}
    assert blocking(report) == counted(report)


def test_text_is_counted_where_both_have_seeds_and_blocks_when_it_is_strict(write: Write) -> None:
    train = [an_episode("t", texts=["a wall", "a door"])]
    evaluation = [an_episode("e", texts=["a wall", "A door!"]), an_episode("f")]
    report = compared(write, train, evaluation)
    assert not report.leaks
    assert counted(report) == {"prompt": 1, "near_prompt": 1, "prompt_answer": 2}
    assert str(report.aliased) == "aliased text: 1 of 2"
    assert [str(world) for world in report.aliased.worlds] == [f"world goto seed {evaluation[0].seed}"]
    assert "aliased text: 1 of 2" in list(report.lines())
    strict = compared(write, train, evaluation, strict_text=True)
    assert blocking(strict) == {"prompt": 1, "near_prompt": 1, "prompt_answer": 2}


@pytest.mark.full
@pytest.mark.parametrize("seedless", ["train", "eval"])
def test_text_blocks_where_one_side_has_no_world(write: Write, seedless: str) -> None:
    lacking: list[dict[str, Any]] = [{"seed": None}, {"env_id": None}, {"task": None}]
    train, evaluation = (
        [
            an_episode(f"{side}{n}", texts=[f"wall {n}"], **(missing if side == seedless else {}))
            for n, missing in enumerate(lacking)
        ]
        for side in ("train", "eval")
    )
    assert blocking(compared(write, train, evaluation)) == {"prompt": 3, "prompt_answer": 3}


@pytest.mark.full
def test_a_text_of_a_seeded_and_a_seedless_episode_blocks_and_the_others_are_counted(write: Write) -> None:
    train = [an_episode("t", texts=["a wall", "a door"]), an_episode("u", texts=["a wall"], seed=None)]
    report = compared(write, train, [an_episode("e", texts=["a wall", "a door"])])
    (prompts,) = [finding for finding in report.findings if finding.kind == LeakKind.PROMPT]
    assert (prompts.n, prompts.n_of, prompts.n_blocking) == (2, 2, 1)
    assert "LEAK  2 of 2 identical prompts, of which 1 where a side has no seeds" in list(report.lines())


@pytest.mark.full
def test_files_and_tool_calls_are_part_of_a_text(write: Write) -> None:
    def seen(name: str, picture: str, city: str) -> Episode:
        call = {"type": "tool_call", "id": name, "name": "weather", "arguments": f'{{"city": "{city}"}}'}
        content = [{"type": "text", "text": "look"}, {"type": "unknown", "data": {"image": picture}}]
        messages = tuple(
            Message.model_validate(each)
            for each in ({"role": "assistant", "content": [call]}, {"role": "user", "content": content})
        )
        return an_episode(name, seed=None, steps=(Transition(step_index=0, messages=messages),))

    train = [seen("t", "aa", "Rome")]
    assert not compared(write, train, [seen("e", "bb", "Rome"), seen("f", "aa", "Oslo")]).leaks
    assert blocking(compared(write, train, [seen("e", "aa", "ROME")])) == {"near_prompt": 1}


@pytest.mark.full
def test_a_hash_made_of_text_counts_as_text(write: Write) -> None:
    same = {"initial_state_hash": "text:abc"}
    report = compared(write, [an_episode("t", **same)], [an_episode("e", **same)])
    assert (report.leaks, counted(report), report.aliased.n) == (False, {"first_text": 1}, 1)
    report = compared(write, [an_episode("t", **same, seed=None)], [an_episode("e", **same)])
    assert blocking(report) == {"first_text": 1}


@pytest.mark.full
def test_an_unknown_task_is_the_same_as_an_unknown_task(write: Write) -> None:
    train, evaluation = an_episode("t", task=None, seed=3), an_episode("e", task=None, seed=3)
    assert blocking(compared(write, [train], [evaluation])) == {"world": 1}
    assert not compared(write, [train], [an_episode("e", task="goto", seed=3)]).leaks


@pytest.mark.full
def test_honest_babyai_training_passes_and_its_aliases_are_counted(write: Write) -> None:
    """Another seed is another world, and small worlds read alike all the same."""
    environment = make("babyai", "goto")

    def begun(seed: int) -> Episode:
        start = environment.reset(seed)
        return an_episode(
            f"ep-{seed}",
            seed=seed,
            env_id="babyai",
            initial_state_hash=start.initial_state_hash,
            origin={"mission": start.mission},
            steps=(
                a_step(0, f"{start.mission}\n{start.observation}").model_copy(
                    update={"observation": start.observation}
                ),
            ),
        )

    train, evaluation = [begun(seed) for seed in range(400)], [begun(seed) for seed in range(1000, 1060)]
    environment.close()
    texts = {((one.origin or {})["mission"], one.steps[0].observation) for one in train}
    aliases = [
        one.seed for one in evaluation if ((one.origin or {})["mission"], one.steps[0].observation) in texts
    ]
    assert len(aliases) > 3
    report = compared(write, train, evaluation)
    assert not report.leaks
    assert report.checked() is report
    assert [world.seed for world in report.aliased.worlds] == aliases
    assert str(report.aliased) == f"aliased text: {len(aliases)} of 60"
    assert list(report.lines())[-2:] == [f"aliased text: {len(aliases)} of 60", "no leak"]


@pytest.mark.full
def test_a_room_that_two_tasks_share_is_counted_by_its_seed(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    def begun(task: str, seed: int) -> Episode:
        environment = make("babyai", task)
        start = environment.reset(seed)
        environment.close()
        return an_episode(
            f"{task}-{seed}",
            env_id="babyai",
            task=task,
            seed=seed,
            initial_state_hash=start.initial_state_hash,
            texts=[start.observation],
        )

    train = write([begun("goto", seed) for seed in range(8)] + [begun("open", seed) for seed in range(12)])
    evaluation = write([begun("pickup", seed) for seed in range(5, 15)])
    report = leak(train, evaluation, reservations=())
    (room,) = (finding for finding in report.findings if finding.kind == LeakKind.ROOM)
    assert (room.n, room.n_of, room.n_blocking) == (3, 10, 0)  # goto and pickup of 5, 6, 7; open is elsewhere
    assert room.examples[0].train_episode == "goto-5"
    assert not report.leaks
    assert run(["leak", str(train), str(evaluation)]) == 0
    said = capsys.readouterr().out
    assert "counted  3 of 10 rooms (environment and seed, under another task)\n" in said
    assert "babyai pickup seed 5: goto-5 and pickup-5" in said


def test_reserved_worlds_are_found_by_their_seeds_and_by_their_states(write: Write) -> None:
    kept_worlds = (
        Reservation(env="world", tasks=("goto", "open"), seeds="200:220"),
        Reservation(env="world", tasks=("goto",), seeds="0:100:7", states=("secret",)),
        Reservation(env="other", tasks=("goto",), seeds="0:1000"),
    )
    train = write(
        [
            an_episode("a", seed=205),
            an_episode("b", seed=219, task="open"),
            an_episode("c", seed=220),
            an_episode("d", seed=14),
            an_episode("e", seed=15),
            an_episode("f", seed=7, task="open"),
            an_episode("g", seed=None, initial_state_hash="secret"),
        ]
    )
    report = leak(train, reservations=kept_worlds)
    assert blocking(report) == {"reserved": 4}
    assert [example.what for example in report.findings[0].examples] == [
        "world goto seed 205",
        "world open seed 219",
        "world goto seed 14",
    ]
    assert (report.evaluation, report.n_reserved) == (None, 3)
    assert "LEAK  4 of 7 episodes of reserved worlds" in list(report.lines())


def test_training_goes_on_only_where_a_leak_is_allowed_and_the_report_then_says_so(write: Write) -> None:
    report = compared(write, [an_episode("t", seed=1)], [an_episode("e", seed=1)])
    with pytest.raises(DataError, match=r"leaks: it shares with .*: 1 world") as caught:
        report.checked()
    assert "--allow-leak" in str(caught.value.hint)
    allowed = report.checked(allow_leak=True)
    assert (allowed.is_allowed, report.is_allowed) == (True, False)
    assert "this leak was allowed: results on these worlds are not held out" in list(allowed.lines())
    assert LeakReport.model_validate_json(allowed.model_dump_json()) == allowed


def test_what_cannot_be_checked_is_said(write: Write) -> None:
    nothing = leak(write([an_episode("t")]), reservations=())
    assert list(nothing.lines()) == [
        "nothing was compared: there is no evaluation store, and no seeds are reserved"
    ]
    train = [
        an_episode("a", seed=None, initial_state_hash=None, purpose="eval"),
        an_episode("b", steps=(Transition(step_index=0),)),
    ]
    said = list(compared(write, train, [an_episode("e")]).unchecked())
    assert said == [
        "TRAIN: 1 of 2 episodes have no environment, task and seed: their worlds cannot be compared, so "
        "shared text is a leak",
        "TRAIN: 1 of 2 episodes have no hash of their initial state by the environment: the same world "
        "under two seeds is not recognised",
        "TRAIN: 1 of 3 steps have no prompt: they cannot be compared as text",
        "TRAIN: 1 of 2 episodes were played for evaluation; `trajkit sft` leaves them out, and `trajkit "
        "convert` refuses them without --include-eval",
    ]


@pytest.mark.full
def test_parts_do_not_change_the_report(write: Write, attempts: Callable[..., Store]) -> None:
    texts = [f"text {n % 7}" for n in range(20)]
    train = [an_episode(f"t{n}", texts=[texts[n], texts[n - 1]], seed=None) for n in range(20)]
    evaluation = write(an_episode(f"e{n}", texts=[texts[n]]) for n in range(9))
    one, other = (
        leak(attempts(train, parts).path, evaluation, reservations=())
        for parts in (None, [range(1, 20, 2), range(0, 20, 2)])
    )
    assert one.findings == other.findings
    assert one.findings[0].examples[0].what.startswith("step 0: 'text ")


def test_a_changed_part_is_refused(write: Write) -> None:
    store = write([an_episode("t")])
    part = next((store / "steps").iterdir())
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError, match="its sha256 differs"):
        leak(store, store, reservations=())


@pytest.mark.full
def test_the_command_ends_with_one_where_there_is_a_leak(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train, clean = write([an_episode("t", seed=5)]), write([an_episode("e", seed=6)])
    assert run(["leak", str(train), str(clean)]) == 0
    assert capsys.readouterr().out.splitlines() == ["aliased text: 0 of 1", "no leak"]
    assert run(["leak", str(train), str(write([an_episode("f", seed=5)])), "--json"]) == 1
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert shown["leaks"] is True
    assert shown["findings"][0]["kind"] == "world"
    assert "error: " in printed.err
    assert "1 world (environment, task and seed)" in printed.err
    same = write([an_episode("g", texts=["t sees wall 0"])])
    assert run(["leak", str(train), str(same)]) == 0
    assert run(["leak", str(train), str(same), "--strict-text"]) == 1
    capsys.readouterr()
    assert run(["leak", str(train)]) == 2
    assert "no EVAL, and no seeds are reserved" in capsys.readouterr().err
    Path("trajkit.toml").write_text('[[reserved]]\nenv = "world"\ntasks = ["goto"]\nseeds = "0:9"\n')
    assert run(["leak", str(train)]) == 1
    assert capsys.readouterr().out.startswith("LEAK  1 of 1 episode of a reserved world")


def runs_of(text: str) -> set[tuple[str, ...]]:
    words = ["user", *re.sub(r"[^\w]+", " ", text.lower()).split()]
    return {tuple(words[i : i + 5]) for i in range(max(len(words) - 4, 1))}


_story = st.lists(st.sampled_from(["red", "ball", "wall", "door", "key"]), min_size=30, max_size=60)


@portions(4)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stories=st.lists(_story, min_size=1, max_size=3), data=st.data(), near=st.sampled_from([0.5, 0.8, 0.9])
)
def test_prompts_that_share_nearly_all_their_words_are_those_found_in_plain_python(
    portion: int, write: Write, stories: list[list[str]], data: st.DataObject, near: float
) -> None:
    told = [" ".join(story) for story in stories]
    changed = []
    for story in data.draw(st.lists(st.sampled_from(stories), min_size=1, max_size=4)):
        words = list(story)
        for place in data.draw(st.lists(st.integers(0, len(words) - 1), max_size=3)):
            words[place] = "window"
        changed.append(" ".join(words))
    expected = {
        other
        for other in changed
        if other not in told
        and any(
            len(runs_of(one) & runs_of(other)) >= near * len(runs_of(one) | runs_of(other)) for one in told
        )
    }
    train = [an_episode(f"t{n}", texts=[text], seed=None) for n, text in enumerate(told)]
    evaluation = [an_episode(f"e{n}", texts=[text]) for n, text in enumerate(changed)]
    report = compared(write, train, evaluation, near=near)
    assert blocking(report).get("near_prompt", 0) == len(expected)


@pytest.mark.full
def test_near_identical_prompts_count_only_under_the_same_system_message_and_where_text_blocks(
    write: Write,
) -> None:
    words = [f"w{n}" for n in range(100)]
    near = " ".join([*words[:50], "other", *words[51:]])

    def one(name: str, text: str, system: str = "Play.", **fields: Any) -> Episode:
        messages = (message("system", system), message("user", text))
        return an_episode(name, steps=(Transition(step_index=0, messages=messages),), **fields)

    train = [one("t", " ".join(words), seed=None)]
    report = compared(write, train, [one("e", near)])
    assert blocking(report) == {"near_prompt": 1}
    assert report.findings[0].examples[0].train_episode == "t"
    assert not compared(write, train, [one("e", near, "Your mission: another.")]).leaks
    assert not compared(write, train, [one("e", near)], near=0.95).leaks
    seeded = [one("t", " ".join(words))]
    assert not compared(write, seeded, [one("e", near)]).findings
    assert blocking(compared(write, seeded, [one("e", near)], strict_text=True)) == {"near_prompt": 1}
    assert blocking(compared(write, seeded, [one("e", near, seed=None)])) == {"near_prompt": 1}


@pytest.mark.parametrize("near", [0.0, 1.5, float("nan")])
def test_a_similarity_that_cannot_be_is_refused(near: float) -> None:
    with pytest.raises(RequestError, match="must be above 0 and at most 1"):
        leak("train", "eval", near=near)


def test_long_prompts_are_compared_by_a_similarity_of_many_decimals(write: Write) -> None:
    words = [f"word{n}" for n in range(2_000)]
    train = an_episode("t", texts=[" ".join(words)], **UNSEEDED)
    evaluation = an_episode("e", texts=[" ".join([*words, "more"])], **UNSEEDED)
    assert blocking(compared(write, [train], [evaluation], near=2 / 3)) == {"near_prompt": 1}


@pytest.mark.parametrize("side", daily(["train", "eval"], 1))
def test_a_side_is_cleaned_of_every_kind_of_leak_and_a_tally_says_what_left(
    write: Write, tmp_path: Path, side: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train, evaluation = planted()
    words = " ".join(f"word{n}" for n in range(80))
    evaluation.append(an_episode("e10", texts=[f"{words} here"], **UNSEEDED))
    train += [an_episode(f"t{n}", texts=[f"{words} there {n}"], **UNSEEDED) for n in (10, 11, 12)]
    stores = {"train": write(train), "eval": write(evaluation)}
    asked = ["leak", str(stores["train"]), str(stores["eval"])]
    assert run(asked) == 1
    assert "--drop eval` cleans a side" in capsys.readouterr().err
    assert run([*asked, "--drop", side, "--dry-run"]) == 0
    assert len(list(tmp_path.iterdir())) == 2
    goal = tmp_path / "clean"
    capsys.readouterr()
    assert run([*asked, "--drop", side, "-o", str(goal), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    n_left = len(PLANTS) + (3 if side == "train" else 1)
    n_before = len(train if side == "train" else evaluation)
    assert (said["n_episodes_in"], said["n_episodes_out"]) == (n_before, n_before - n_left)
    assert {left["reason"] for left in said["left"]} >= {"leak: episode id", "leak: identical prompt"}
    assert run(["leak", *(str(goal if name == side else path) for name, path in stores.items())]) == 0
    assert open_store(goal).manifest.lineage[-1].arguments["drop"] == side


@pytest.mark.full
def test_cleaning_what_is_learned_leaves_out_reserved_worlds_and_nothing_without_a_leak(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trajkit.toml").write_text('[[reserved]]\nenv = "world"\ntasks = ["goto"]\nseeds = "0:3"\n')
    train = write([an_episode(f"t{n}", seed=n) for n in range(5)])
    evaluation = write([an_episode(f"e{n}", seed=n) for n in range(10, 13)])
    both = (str(train), str(evaluation))
    assert run(["leak", *both, "--drop", "train", "-o", "clean"]) == 0
    assert "left: leak: episode of a reserved world         3" in capsys.readouterr().out
    assert run(["leak", "clean", both[1], "--drop", "eval", "-o", "same"]) == 0
    assert open_store("same").manifest.digest == open_store(evaluation).manifest.digest


@pytest.mark.parametrize(
    ("options", "said"),
    [(("-o", "x"), "are for --drop"), (("--drop", "train"), "there is no EVAL")],
)
def test_what_cannot_be_cleaned_is_said(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trajkit.toml").write_text('[[reserved]]\nenv = "world"\ntasks = ["goto"]\nseeds = "0:3"\n')
    assert run(["leak", str(write([an_episode("t0")])), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_group_that_the_user_names_is_a_leak_and_can_be_dropped(
    attempt: Callable[..., Episode], attempts: Callable[..., Store], tmp_path: Path
) -> None:
    def chat(name: str, customer: str | None) -> Episode:
        tags = {} if customer is None else {"customer": customer}
        return attempt(name, env_id=None, task=None, seed=None, tags=tags)

    train = attempts([chat("a", "ann"), chat("b", "ben"), chat("c", None)])
    evaluation = attempts([chat("d", "ann"), chat("e", "eve"), chat("f", None)])
    assert leak(train.path, evaluation.path, near=None).findings == ()
    report = leak(train.path, evaluation.path, near=None, by=["tags.customer"])
    (found,) = report.findings
    assert (found.kind, found.n, found.n_blocking, found.examples[0].what) == ("group", 1, 1, "ann")
    cleaned = trajkit.leak(
        train.path, evaluation.path, by="tags.customer", near=1.0, drop="eval", output=tmp_path / "clean"
    )
    assert sorted(one.episode_id for one in trajkit.open_dataset(tmp_path / "clean")) == ["e", "f"]
    assert cleaned.entry.arguments["by"] == ["tags.customer"]
    with pytest.raises(QueryError, match="customre"):
        leak(train.path, evaluation.path, by=["tags.customre"])
