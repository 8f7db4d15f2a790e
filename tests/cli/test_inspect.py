"""`trajkit inspect`: one page about logs, at the door of the command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import plain, seen
from trajkit.cli.main import run
from trajkit.sources.files import sample

GITHUB = "gh" + "p_" + "16C7e42F292c6912E7710c838347Ae178B4a"
MAIL = "jane.roe" + "@" + "corp-mail.io"
OWN = "hunter2-is-my-own-secret-99"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    """A conversation in which user and assistant take turns."""
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return {"messages": messages, **more}


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text(
        "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n", encoding="utf-8"
    )
    return path


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six conversations and two damaged lines, with secrets wherever one can be."""
    monkeypatch.setenv("MY_OWN_KEY", OWN)
    rows = [
        chat("one", "1", "two", "2"),
        chat("one", "1"),
        chat("one", "1"),
        chat(f"{'x ' * 115}{GITHUB} is the token", f"{OWN} it is; write to {MAIL}", tools=[TOOL]),
        '{"messages": [{"role": "user", "content": "' + GITHUB,
        chat("no answer"),
        json.dumps({"messages": GITHUB}),
        chat("three", "3", "four", "4", "five", "5"),
    ]
    return write(tmp_path / "logs.jsonl", rows)


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["inspect", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_page_counts_what_is_there(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told([str(logs)], capsys)
    assert found["format"] == "openai-chat"
    assert found["n_bytes"] == logs.stat().st_size
    assert found["sample"] is None
    size, can, same = found["size"], found["trainable"], found["repeated"]
    assert (size["n_documents"], size["n_episodes"], size["n_steps"]) == (8, 5, 8)
    assert (size["n_input_tokens"], size["n_steps_uncounted"]) == (None, 8)
    assert size["n_tokens_estimated"] == -(-size["n_text_bytes"] // 4)
    assert (can["n_steps"], can["not_trainable"]) == (8, {})
    assert can["n_episodes_growing"] == 5
    assert can["n_steps_with_tools"] == 1
    assert (same["n_answers"], same["n_same_answers"]) == (8, 2)
    assert (same["n_first_prompts"], same["n_same_first_prompts"]) == (5, 2)
    assert found["metrics"] == []
    assert [one["place"] for one in found["failed"]["places"]] == [f"logs.jsonl:{n}" for n in (5, 6, 7)]
    assert sum(found["failed"]["left"].values()) == 3
    kinds = {one["kind"]: one["n_found"] for one in found["secrets"]}
    assert kinds == {"github-token": 1, "email": 1, "key-of-this-environment": 1}
    assert [(one["which"], one["n_steps"]) for one in found["examples"]] == [
        ("longest", 3),
        ("typical", 1),
        ("shortest", 1),
    ]


def test_no_secret_is_in_any_output(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for more in (["--json"], ["--html", "page.html"]):
        assert run(["inspect", str(logs), *more]) == 0
        said = capsys.readouterr()
        outputs += [said.out, said.err]
    outputs.append(Path("page.html").read_text(encoding="utf-8"))
    assert any("[GITHUB_TOKEN_1]" in text or "GITHUB" in text for text in outputs)
    for text in outputs:
        for secret in (GITHUB, MAIL, OWN):
            # half a secret is one, too: what is cut is cut after it was replaced
            assert secret[:12] not in text


def test_the_best_the_typical_and_the_worst_go_by_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(["sample:babyai"], capsys)
    best, typical, worst = found["examples"]
    assert (best["which"], typical["which"], worst["which"]) == ("best", "typical", "worst")
    assert best["score"] > typical["score"] > worst["score"] == 0
    scores = {one["name"]: one for one in found["metrics"]}
    assert (scores["episode_return"]["n"], scores["progression"]["most"]) == (55, 1)
    assert found["size"]["n_input_tokens"] == 823_414
    assert found["failed"]["outcomes"] == {"success": 46, "truncated": 9}


@pytest.mark.full
def test_the_commands_run_as_they_are_typed(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (str(logs), "stores/imported"):
        commands = told([place], capsys)["commands"]
        assert len(commands) == 3
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == "trajkit"
            assert run(arguments) == 0, command
    verbs = [command.split()[1] for command in commands]
    assert verbs == ["redact", "dedupe", "convert"]
    assert all(GITHUB not in line for line in Path("stores/train-2.jsonl").read_text().splitlines())


def test_prompts_that_leak_into_an_evaluation_set_are_counted(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = write(logs.parent / "held.jsonl", [chat("one", "1"), chat("new", "0")])
    leaked = told([str(logs), "--against", str(held)], capsys)["leaked"]
    assert (leaked["against"], leaked["n_episodes"]) == (str(held), 2)
    assert leaked["found"]["identical prompt"] == 1
    assert leaked["n_blocking"] > 0
    other = write(logs.parent / "other.jsonl", [chat("never seen before", "0")])
    assert told([str(logs), "--against", str(other)], capsys)["leaked"]["n_blocking"] == 0


@pytest.mark.full
def test_of_a_large_file_evenly_spread_lines_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = [chat(f"{number} {'x' * (number % 50)}", "yes") for number in range(5_000)]
    rows[7] = "{"
    path = write(tmp_path / "large.jsonl", rows)
    monkeypatch.setattr(sample, "MOST_BYTES", 100_000)
    monkeypatch.setattr(sample, "_BLOCK", 50_000)
    monkeypatch.setattr(sample, "_PIECE", 1000)
    found = told([str(path)], capsys)
    assert found["extrapolated"]
    assert found["sample"]["n_bytes"] < 200_000 < found["sample"]["n_bytes_of"]
    assert found["estimates_of_the_whole"]["n_episodes"] == pytest.approx(5_000, rel=0.05)
    assert [one["place"] for one in found["failed"]["places"]] == ["large.jsonl:8"]
    assert run(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "only a part was read" in text
    assert "~ is an estimate of the whole" in text


def test_lines_of_a_part_have_their_right_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "large.jsonl", [chat(str(number), "yes") for number in range(5000)])
    monkeypatch.setattr(sample, "MOST_BYTES", 20_000)
    monkeypatch.setattr(sample, "_BLOCK", 10_000)
    monkeypatch.setattr(sample, "_PIECE", 300)
    from trajkit.sources.wish import Wish

    part = sample.Sample(str(path))
    n_seen = 0
    for found in part.read(str(path), "openai-chat", Wish()):
        number = int(found.place.rpartition(":")[2])  # type: ignore[union-attr]
        assert json.loads(found.key)["messages"][0]["content"] == str(number - 1)  # type: ignore[union-attr]
        n_seen += 1
    assert 50 < n_seen < 500


@pytest.mark.full
def test_of_a_large_folder_the_first_files_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        write(tmp_path / f"{number:02}.jsonl", [chat(f"{number} {line}", "yes") for line in range(10)])
    n_bytes = sum(each.stat().st_size for each in tmp_path.iterdir())
    monkeypatch.setattr(sample, "MOST_BYTES", n_bytes // 2)
    found = told([str(tmp_path)], capsys)
    assert found["sample"]["how"] in ("the first 10 files", "the first 11 files")
    assert found["estimates_of_the_whole"]["n_episodes"] == pytest.approx(200, rel=0.1)


@pytest.mark.full
def test_a_large_file_that_cannot_be_cut_is_read_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [chat(f"{number}", "yes") for number in range(50)]
    (tmp_path / "large.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("small", encoding="utf-8")
    monkeypatch.setattr(sample, "MOST_BYTES", 1000)
    found = told([str(tmp_path)], capsys)
    assert (found["sample"], found["size"]["n_episodes"]) == (None, 50)
    assert found["failed"]["unread"] == {".txt": 1}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["notes.txt"], "not in a known format"),
        (["empty"], "has no files"),
        (["bad.jsonl", "--from", "openai-chat"], "no episode in bad.jsonl"),
        (["missing.jsonl"], "there is no file or folder"),
        (["https://someone:secret-word@logs.example.org/x"], "--from"),
        (["sample:babyai", "--from", "atif"], "is a store"),
    ],
)
def test_what_is_no_log_is_refused_with_a_hint(
    arguments: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    write(tmp_path / "bad.jsonl", ['{"messages": [{"role"', "{"])
    assert run(["inspect", *arguments]) in (1, 2)
    said = capsys.readouterr()
    assert word in said.err
    assert "secret-word" not in said.out + said.err


def test_a_page_that_exists_is_not_written_over(logs: Path) -> None:
    Path("page.html").write_text("mine", encoding="utf-8")
    assert run(["inspect", str(logs), "--html", "page.html"]) != 0
    assert Path("page.html").read_text(encoding="utf-8") == "mine"


@pytest.mark.full
def test_the_page_fits_a_narrow_terminal(logs: Path) -> None:
    printed = seen(["inspect", logs.name], columns=80, folder=logs.parent)
    assert "\x1b[1m" in printed
    shown = plain(printed).rpartition("\x1b[2K")[2]  # what is before it was progress, and is gone
    text = [line for line in shown.splitlines() if not line.startswith("  trajkit ")]
    assert max(map(len, text)) <= 80
