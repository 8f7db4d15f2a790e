"""`trajkit import`: what came in, what did not and why, and that nothing is half-written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.exchange import conversation, whole
from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.formats import format_named
from trajkit.formats.base import json_line
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes

TALK = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(path: str, *values: Any) -> Path:
    """Write lines of JSON; bytes are a line as they are."""
    goal = Path(path)
    goal.parent.mkdir(parents=True, exist_ok=True)
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    goal.write_bytes(b"".join(text + b"\n" for text in texts))
    return goal


def bring(*arguments: str) -> int:
    return run(["import", *arguments])


def test_the_tally_and_the_last_line_say_what_now_exists(capsys):
    lines("data/a.jsonl", TALK, TALK)
    Path("data/README.md").write_text("read me")
    assert bring("data", "-o", "store") == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "read data as openai-chat: 2 documents",
        "not read: 1 file with the suffix .md",
    ]
    digest = open_dataset("store").store.manifest.digest
    assert printed.out.splitlines()[-1] == f"store  2 episodes  2 steps  digest {digest[:12]}"


def test_the_same_files_give_the_same_store(capsys):
    lines("data/a.jsonl", TALK, {**TALK, "tools": []})
    for goal in ("one", "two"):
        assert bring("data", "-o", goal) == 0
    assert open_dataset("one").store.manifest.digest == open_dataset("two").store.manifest.digest


@pytest.mark.parametrize("name", daily(["atif", "adp", "sts", "hf-messages"], 2))
def test_what_trajkit_wrote_gives_the_very_store_that_it_was_written_from(name, capsys):
    form = format_named(name)
    for episode in (whole(), conversation(episode_id="e2", source="other")):
        text = "".join(f"{json_line(value)}\n" for value in form.write(episode).values)
        if form.is_file:
            suffix = "jsonl" if form.is_lines else "json"
            Path("data").mkdir(exist_ok=True)
            Path(f"data/{episode.episode_id}.{suffix}").write_text(text, encoding="utf-8")
        else:
            Path("data").mkdir(exist_ok=True)
            with Path("data/all.jsonl").open("a", encoding="utf-8") as file:
                file.write(text)
    write_episodes(Path("before"), [whole(), conversation(episode_id="e2", source="other")], kind="test")
    assert bring("data", "-o", "after") == 0
    assert "2 documents, 2 of them written by trajkit" in capsys.readouterr().err
    assert open_dataset("after").store.manifest.digest == open_dataset("before").store.manifest.digest
    assert list(open_dataset("after")) == list(open_dataset("before"))


def test_what_cannot_be_read_is_counted_named_and_leaves_nothing(capsys):
    broken = {"messages": [{"role": "user", "content": "a"}]}
    lines("data/a.jsonl", TALK, b"{", TALK)
    lines("data/b.jsonl", broken, {"conversations": [{"from": "human", "value": "x"}]}, b"\xff\xfe")
    assert bring("data", "-o", "store") == 1
    error = capsys.readouterr().err
    assert "error: 4 of 6 documents cannot be read as openai-chat: a.jsonl:2: the document: not JSON" in error
    assert "b.jsonl:1: steps: no message of the assistant" in error
    assert "b.jsonl:2: the document: sharegpt and not openai-chat; and 1 more" in error
    assert "hint: leave such documents out and count them with --skip-bad" in error
    assert sorted(path.name for path in Path().iterdir()) == ["data"]


def test_what_is_skipped_is_in_the_tally_and_the_lineage(capsys):
    lines("data/a.jsonl", TALK, b"{", b"\xff", TALK)
    assert bring("data", "-o", "store", "--skip-bad") == 0
    printed = capsys.readouterr()
    assert "left out: a.jsonl:2: the document: not JSON" in printed.err
    assert "left: cannot be read: not UTF-8" in printed.out
    (entry,) = open_dataset("store").store.manifest.lineage
    assert (entry.verb, entry.n_episodes_in, entry.n_episodes_out) == ("import", 4, 2)
    assert {left.reason: left.n_episodes for left in entry.left} == {
        "cannot be read: not JSON": 1,
        "cannot be read: not UTF-8": 1,
    }


def test_json_gives_the_tally(capsys):
    lines("data/a.jsonl", TALK, b"{")
    assert bring("data", "-o", "store", "--skip-bad", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["format"], printed["n_documents"], printed["n_episodes"]) == ("openai-chat", 2, 1)
    assert printed["left"] == {"cannot be read: not JSON": 1}


def test_an_id_that_two_documents_say_is_a_mistake_and_one_that_is_made_is_not(capsys):
    row = {"episode_id": "e", **TALK}
    lines("named/a.jsonl", row, row)
    assert bring("named", "-o", "store") == 1
    assert "a.jsonl:2: the document: an episode id that is there twice 'e'" in capsys.readouterr().err
    lines("made/a.jsonl", TALK, TALK)
    assert bring("made", "-o", "store") == 0
    first, second = sorted(episode.episode_id for episode in open_dataset("store"))
    assert second == f"{first}-2"


def test_an_episode_says_which_file_it_came_from():
    lines("data/deep/a.jsonl", TALK)
    assert bring("data", "-o", "store") == 0
    (episode,) = open_dataset("store")
    assert episode.origin == {"file": "deep/a.jsonl:1"}


def test_success_and_purpose_are_as_asked():
    value = format_named("hf-messages").write(whole()).values[0]
    lines("a.jsonl", value)
    assert bring("a.jsonl", "-o", "store", "--success", "success >= 2", "--purpose", "eval") == 0
    (episode,) = open_dataset("store")
    assert (episode.outcome, episode.purpose) == ("failure", "eval")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing"], 2, "there is no file or folder nothing"),
        (["data", "--from", "csv"], 2, "no format 'csv' to import"),
        (["empty"], 2, "empty has no files in it"),
        (["strange"], 2, "none of the first 1 files in strange is of a format that is known"),
        (["strange/a.txt"], 2, "strange/a.txt is of no format that is known"),
        (["half.jsonl"], 2, "half.jsonl is of no format that is known: not JSON: unexpected end of hex"),
        (["data", "--success", "often"], 2, "'often' is not METRIC OPERATOR NUMBER"),
        (["strange", "--from", "atif"], 1, "no episode in strange"),
    ],
)
def test_a_request_that_cannot_be_met_says_why(arguments, code, words, capsys):
    lines("data/a.jsonl", TALK)
    Path("empty").mkdir()
    Path("strange").mkdir()
    Path("strange/a.txt").write_text("hello")
    Path("half.jsonl").write_text(r'{"messages": [{"role": "user", "content": "\ud800"}]}')
    assert bring(*arguments, "-o", "store") == code
    assert words in capsys.readouterr().err
    assert not Path("store").exists()


def test_a_store_that_is_there_is_never_written_over(capsys):
    lines("data/a.jsonl", TALK)
    assert bring("data", "-o", "store") == 0
    assert bring("data", "-o", "store") == 1
    assert "store exists already" in capsys.readouterr().err


def test_a_store_that_was_imported_can_be_trained_on(capsys):
    talk = {"messages": [*TALK["messages"]] * 10}
    lines("data/a.jsonl", talk)
    assert bring("data", "-o", "store") == 0
    assert run(["convert", "store", "--to", "openai-sft", "-o", "train.jsonl"]) == 0
    assert len(Path("train.jsonl").read_text().splitlines()) == 10


@pytest.mark.parametrize("name", ["openai-chat", "hf-messages", "adp"])
def test_evaluation_episodes_leave_as_such_or_not_at_all(name, capsys):
    write_episodes(Path("eval"), [conversation(purpose="eval")], kind="test")
    code = run(["convert", "eval", "--to", name, "-o", "out.jsonl"])
    if name == "adp":  # the profile says what it was played for
        assert code == 0
        assert bring("out.jsonl", "-o", "again") == 0
        assert [str(episode.purpose) for episode in open_dataset("again")] == ["eval"]
    else:
        assert code == 2
        assert "has 1 evaluation episode; they must not train" in capsys.readouterr().err
        assert not Path("out.jsonl").exists()
        assert run(["convert", "eval", "--to", name, "-o", "out.jsonl", "--include-eval"]) == 0
