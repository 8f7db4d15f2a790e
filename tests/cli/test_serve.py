"""`trajkit up --serve`: a model of this machine in the stand-in's place, behind the real gateway."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters import make_adapter
from tests.cli.test_up import Shell
from trajkit.cli.main import run
from trajkit.commands.up import _model_and_name
from trajkit.store.dataset import open_dataset

BASE = "sample:tiny-base"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.run("down")


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.full
def test_a_model_of_this_machine_plays_through_the_gateway(shell: Shell) -> None:
    make_adapter(BASE, shell.folder / "tuned", loudness=0.01)
    asked = ("up", "--serve", f"{BASE}=tiny", "--serve", "tuned=mine")
    assert " tiny, mine\n" in done(shell.run(*asked))
    facts = shell.json("status")["model_server"]
    assert (facts["is"], facts["models"], facts["is_running"]) == ("trajkit serve", ["tiny", "mine"], True)
    state = json.loads((shell.folder / ".trajkit" / "stack.json").read_text())
    config = tomllib.loads(Path(state["config_file"]).read_text())
    provider = config["models"]["agent"]["providers"]["stand_in"]
    assert (provider["model_name"], provider["api_base"]) == ("tiny", f"{facts['url']}/v1/")
    assert "it was up already" in shell.run(*asked).stderr

    played = ("rollout", "babyai", "--task", "goto", "--variant", "baseline", "--episodes", "2")
    done(shell.run(*played, "--max-steps", "4", "-o", "played"))
    steps = [step for episode in open_dataset(shell.folder / "played") for step in episode.steps]
    assert steps
    assert all(step.action is not None for step in steps)  # the schema held

    changed = done(shell.run("up"))
    assert "rule player, not a language model" in changed
    assert shell.json("status")["model_server"]["pid"] != facts["pid"]
    assert "model server stopped" in done(shell.run("down"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--serve", BASE, "--model", "openai::x"], "--model and --serve both say what answers"),
        (["--serve", "nobody"], "no job and no folder 'nobody'"),
        (["--serve", f"{BASE}=a", "--serve", f"{BASE}=b"], "are the same model"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_starts(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["up", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / ".trajkit").exists()


def test_a_name_is_what_follows_the_last_sign_unless_it_is_a_folder(tmp_path: Path) -> None:
    assert _model_and_name("goto-sft") == ("goto-sft", None)
    assert _model_and_name("goto-sft=new") == ("goto-sft", "new")
    (tmp_path / "a=b").mkdir()
    assert _model_and_name(str(tmp_path / "a=b")) == (str(tmp_path / "a=b"), None)
