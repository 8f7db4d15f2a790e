"""`trajkit import`: what came in, what did not and why, and that nothing is half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.formats.exchange import conversation, whole
from tests.formats.test_atif import ASKS, DONE, USER, document
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


def test_the_tally_and_the_last_line_say_what_now_exists_and_it_is_never_written_over(capsys):
    lines("data/deep/a.jsonl", TALK, TALK)
    Path("data/README.md").write_text("read me")
    assert bring("data", "-o", "store") == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "read data as openai-chat: 2 documents",
        "not read: 1 file with the suffix .md",
    ]
    digest = open_dataset("store").store.manifest.digest
    assert printed.out.splitlines()[-1] == f"store  2 episodes  2 steps  digest {digest[:12]}"
    origins = [episode.origin for episode in open_dataset("store")]
    assert origins == [{"file": "deep/a.jsonl:1"}, {"file": "deep/a.jsonl:2"}]
    assert bring("data", "-o", "store") == 1
    assert "store exists already" in capsys.readouterr().err


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
    assert "b.jsonl:2: the document: sharegpt, not openai-chat; and 1 more" in error
    assert "hint: leave such documents out and count them with --skip-bad" in error
    assert sorted(path.name for path in Path().iterdir()) == ["data"]


def test_what_is_skipped_is_in_the_tally_and_the_lineage_and_a_second_store_is_the_same(capsys):
    lines("data/a.jsonl", TALK, b"{", b"\xff", {**TALK, "tools": []})
    assert bring("data", "-o", "store", "--skip-bad") == 0
    printed = capsys.readouterr()
    assert "left out: a.jsonl:2: the document: not JSON" in printed.err
    assert "left: cannot be read: not UTF-8" in printed.out
    (entry,) = open_dataset("store").store.manifest.lineage
    assert (entry.verb, entry.n_episodes_in, entry.n_episodes_out) == ("import", 4, 2)
    left = {"cannot be read: not JSON": 1, "cannot be read: not UTF-8": 1}
    assert {one.reason: one.n_episodes for one in entry.left} == left
    assert bring("data", "-o", "again", "--skip-bad", "--json") == 0
    tally = json.loads(capsys.readouterr().out)
    assert (tally["format"], tally["n_documents"], tally["n_episodes"]) == ("openai-chat", 4, 2)
    assert tally["left"] == left
    assert open_dataset("again").store.manifest.digest == open_dataset("store").store.manifest.digest


def test_an_id_that_two_documents_say_is_a_mistake_and_one_that_is_made_is_not(capsys):
    row = {"episode_id": "e", **TALK}
    lines("named/a.jsonl", row, row)
    assert bring("named", "-o", "store") == 1
    assert "a.jsonl:2: the document: an episode id that occurs twice 'e'" in capsys.readouterr().err
    lines("made/a.jsonl", TALK, TALK)
    assert bring("made", "-o", "store") == 0
    first, second = sorted(episode.episode_id for episode in open_dataset("store"))
    assert second == f"{first}-2"


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
        (["strange"], 2, "none of the first 1 files in strange is in a known format"),
        (["strange/a.txt"], 2, "strange/a.txt is not in a known format"),
        (["half.jsonl"], 2, "half.jsonl is not in a known format: not JSON: unexpected end of hex"),
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
        assert "has 1 evaluation episode; never train on them" in capsys.readouterr().err
        assert not Path("out.jsonl").exists()
        assert run(["convert", "eval", "--to", name, "-o", "out.jsonl", "--include-eval"]) == 0


RUN = """
import resource, sys
from pathlib import Path
from trajkit.sources.files.importing import Wish, import_files
imported, _ = import_files(Path(sys.argv[1]), Path(sys.argv[2]), Wish())
print(imported.n_episodes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_mb(folder: Path, goal: Path) -> tuple[int, float]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder), str(goal)], capture_output=True, text=True, check=True
    )
    n_episodes, kilobytes = done.stdout.split()
    return int(n_episodes), int(kilobytes) / 1024


@pytest.mark.full
def test_memory_does_not_grow_with_the_number_of_files(tmp_path):
    n = 1000
    text = json.dumps(document(USER, {**ASKS, "message": "I search. " * 200}, DONE))
    for name, count in (("few", n // 8), ("many", n)):
        for number in range(count):
            folder = tmp_path / name / str(number // 1000)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.json").write_text(text.replace('"s1"', f'"s{number}"'))
    few, few_mb = peak_mb(tmp_path / "few", tmp_path / "few-store")
    many, many_mb = peak_mb(tmp_path / "many", tmp_path / "many-store")
    assert (few, many) == (n // 8, n)
    assert many_mb < few_mb + 60, (few_mb, many_mb)
