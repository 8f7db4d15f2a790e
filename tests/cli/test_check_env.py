from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from trajkit.cli.main import cli
from trajkit.errors import RequestError

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

BROKEN = """
class Broken:
    tasks = ("sound", "endless")

    def __init__(self, task, loud: bool = False):
        self.task, self.loud = task, loud

    def reset(self, seed):
        self.n = 0
        return f"Task {self.task}.", f"Seed {seed}."

    def step(self, text):
        if self.loud:
            print("aha")
        self.n += 1
        return f"Step {self.n}.", 0.5 * (self.n % 2), self.task == "sound" and self.n == 4, False
"""


@pytest.fixture(autouse=True)
def folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an environment of its own."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    monkeypatch.delitem(sys.modules, "broken_world", raising=False)
    (folder / "broken_world.py").write_text(BROKEN, encoding="utf-8")
    return folder


def run(*arguments: str) -> Any:
    """Run the command; its exit code."""
    return cli.main(["check-env", *arguments], standalone_mode=False)


def test_an_environment_that_keeps_its_promises_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("guess_number:GuessNumber", "--seeds", "0:3") == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()

    assert lines[0].split() == ["check", "result", "task", "seen"]
    assert lines[2].split(maxsplit=4)[:4] == ["begins", "passed", "all", "2"]
    assert lines[-1] == "guess_number:GuessNumber  36 checks: 36 passed"
    assert len(lines) == 2 + 18 + 1
    assert printed.err == ""


def test_a_broken_promise_ends_with_1_and_says_which_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("broken_world:Broken", "--seeds", "0:3", "--steps", "30", "--env-set", "loud=yes") == 1
    printed = capsys.readouterr()

    assert "episodes end             passed   sound" in printed.out
    assert "failed   endless  seed 0 did not end in 30 steps, and states no limit" in printed.out
    assert "it prints, which a rollout sends to stderr: 'aha' and 11 more lines" in printed.out
    assert printed.out.splitlines()[-1].startswith("broken_world:Broken  36 checks: ")
    assert "episodes end: return truncated=True at the environment's step limit" in printed.err
    assert "aha\n" not in printed.out + printed.err


def test_one_task_can_be_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("broken_world:Broken", "--task", "sound", "--seeds", "0:3") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("broken_world:Broken  18 checks: ")


def test_json_is_one_document_with_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    code = run("broken_world:Broken", "--json", "--seeds", "0,2", "--steps", "30", "--env-set", "loud=1")
    printed = capsys.readouterr()
    told = json.loads(printed.out)

    assert code == 1
    assert {name: told[name] for name in ("env_id", "settings", "tasks", "seeds")} == {
        "env_id": "broken_world:Broken",
        "settings": {"loud": "1"},
        "tasks": ["sound", "endless"],
        "seeds": [0, 2],
    }
    checks = told["checks"]
    assert len(checks) == 36
    assert {one["status"] for one in checks} <= {"passed", "warning", "failed", "skipped"}
    assert told["n_failed"] == sum(one["status"] == "failed" for one in checks) == 3
    assert [(one["name"], one["task"]) for one in checks if one["status"] == "failed"] == [
        ("nothing on stdout", "sound"),
        ("episodes end", "endless"),
        ("nothing on stdout", "endless"),
    ]
    assert set(checks[0]) == {"name", "task", "status", "detail", "hint"}


def test_text_of_the_environment_cannot_steer_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "steering_world.py").write_text(
        BROKEN.replace('f"Task {self.task}."', r'"Go \x1b[31mred."'), encoding="utf-8"
    )
    run("steering_world:Broken", "--task", "sound", "--seeds", "0:2")
    printed = capsys.readouterr()

    assert "\x1b" not in printed.out + printed.err
    assert "red." in printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("chess",), "no environment 'chess'"),
        (("broken_world:Brokn",), r"broken_world has no 'Brokn' \(did you mean Broken"),
        (("broken_world:Broken", "--task", "fly"), r"no task 'fly' in broken_world:Broken \(tasks: sound"),
        (("broken_world:Broken", "--env-set", "loud"), "--env-set 'loud' is not NAME=VALUE"),
        (("broken_world:Broken", "--env-set", "lod=1"), r"takes no setting 'lod' \(did you mean loud"),
        (("broken_world:Broken", "--env-set", "loud=perhaps"), "loud='perhaps' is not true or false"),
        (("broken_world:Broken", "--seeds", "5:5"), "no seed is in 5:5"),
    ],
)
def test_a_wrong_request_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        run(*arguments)


@pytest.mark.parametrize("arguments", [(), ("babyai", "--steps", "0"), ("babyai", "--timeout", "0")])
def test_a_wrong_option_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        run(*arguments)
