"""A command that writes two things is killed between them; the same command again leaves both, whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests import warm
from tests.matrix import daily
from trajkit._core.files import sha256_file
from trajkit.cli import main
from trajkit.store.reader import open_store

_CHILD = """
import os, signal, sys

taken = []

def watch(event, arguments):
    if event == "os.rename" and os.path.dirname(os.path.abspath(arguments[1])) == os.getcwd():
        if taken:  # one thing has its name, and this would be the name of the other
            os.kill(os.getpid(), signal.SIGKILL)
        taken.append(arguments[1])

sys.addaudithook(watch)
from trajkit.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
_VERBS = {
    "select": (
        ["select", "sample:babyai", "--where", "outcome = 'success'", "--control", "-o", "out"],
        "out-control",
    ),
    "dedupe": (["dedupe", "sample:babyai", "--exact", "-o", "out"], "out.duplicates.parquet"),
    "convert": (
        ["convert", "sample:babyai", "--to", "openai-sft", "--where", "purpose <> 'eval'", "-o", "out.jsonl"],
        "out.provenance.parquet",
    ),
}


def killed_between(words: list[str], folder: Path) -> None:
    """Run a command that SIGKILL ends when one of its two things has its name."""
    folder.mkdir()
    child = warm.trajkit([_CHILD, *words], folder, dict(os.environ), module="-c")
    assert child.returncode == -signal.SIGKILL, child.stderr


def contents(folder: Path) -> dict[str, str]:
    """What is in a folder: stores by their digest, files by their checksum."""
    names = {path.name: path for path in folder.iterdir() if not path.name.startswith(".")}
    return {
        name: open_store(path).manifest.digest if path.is_dir() else sha256_file(path)
        for name, path in names.items()
    }


@pytest.mark.parametrize("verb", daily(_VERBS, 1))
def test_the_command_that_was_killed_between_two_renames_leaves_both_when_it_runs_again(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, beside = _VERBS[verb]
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    killed_between(words, killed)
    assert list(contents(killed)) == [beside]  # the goal itself comes last: where it is, all is
    calm.mkdir()
    for folder in (calm, killed):
        monkeypatch.chdir(folder)
        assert main.run(words) == 0
    assert contents(killed) == contents(calm)
    assert len(contents(killed)) == 2
    if verb == "dedupe":
        entry = open_store(killed / "out").manifest.lineage[-1]
        assert entry.result["groups_sha256"] == sha256_file(killed / beside)
    if verb == "select":
        entry = open_store(killed / beside).manifest.lineage[-1]
        assert entry.result["of"] == open_store(killed / "out").manifest.digest


@pytest.mark.full
def test_what_another_command_left_is_in_the_way_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, beside = _VERBS["select"]
    killed_between(words, tmp_path / "killed")
    monkeypatch.chdir(tmp_path / "killed")
    before = contents(Path())
    assert main.run([*words, "--seed", "9"]) == 1
    assert f"error: {beside} exists already" in capsys.readouterr().err
    assert contents(Path()) == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    goal = tmp_path / "file" / "out"
    for words in (
        ["split", "sample:babyai", "--ratio", "train=0.5,val=0.5"],
        ["select", "sample:babyai", "--where", "outcome = 'success'", "--control"],
        ["dedupe", "sample:babyai", "--exact"],
    ):
        assert main.run([*words, "-o", str(goal)]) == 1
        assert f"error: {goal} cannot be written: " in capsys.readouterr().err
