"""Completion in the shells themselves: what TAB offers, how cheap that is, and that nothing is ever said."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.cli.jobs import a_job, a_store, an_episode
from trajkit.cli.main import run
from trajkit.commands.completion import ASKED

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
MOST_IMPORTS_OF_CLICK = 20
SHELLS = [name for name in ("bash", "zsh", "fish") if shutil.which(name)]
_BASH = """
source <(trajkit completion bash)
compopt() { COMPREPLY+=("<files>"); }  # it answers in a completion of a person only
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
    _trajkit_completion trajkit
    printf '%s\\n' "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stores, pairs, a job, a configuration."""
    folder = tmp_path_factory.mktemp("completion")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        a_job(a_store("stores/good", an_episode("a")), job_id="first")
        a_store("stores/split/train", an_episode("b"))
    (folder / "stores" / "pairs").mkdir()
    (folder / "stores" / "pairs" / "pairs.json").write_text("{}")
    (folder / "my recipe.yaml").write_text("")
    config = ROOT / "recipes" / "babyai" / "tensorzero.toml"
    (folder / "trajkit.toml").write_text(f'config = "{config}"\n')
    return folder


def in_bash(folder: Path, *lines: str) -> list[str]:
    """What a real bash is offered at the end of each line."""
    done = subprocess.run(
        ["bash", "--norc", "-c", _BASH],
        input="".join(f"{line}\n" for line in lines),
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes_commands_options_and_values(folder: Path) -> None:
    offered = {
        "trajkit sh": "show",
        "trajkit rollout babyai --variant=b": "baseline",  # bash begins a word after the equals sign
        "trajkit show sample:b": "babyai",  # and after the colon
        "trajkit run my": r"my\ recipe.yaml",
        "trajkit nothing of this": "",
        "trajkit show 'stores/go": "stores/good",
    }
    assert dict(zip(offered, in_bash(folder, *offered), strict=True)) == offered


@pytest.mark.parametrize(
    ("line", "word", "values"),
    [
        ("trajkit jobs", "w", "wait"),
        ("trajkit stats", "--conf", "--confidence"),
        ("trajkit rollout babyai --task", "p", "pickup putnext pick_up_seq_go_to"),
        (
            "trajkit evaluate babyai --variants",
            "baseline,hi",
            "baseline,history baseline,history_and_reasoning",
        ),
        ("trajkit show", "stores/", "stores/good stores/split/train"),
        ("trajkit stats sample:babyai --score", "epi", "episode_return"),
        ("trajkit dpo local --train", "stores/p", "stores/pairs"),
        ("trajkit jobs show", "", "first"),
        ("trajkit show", "sample:", "sample:babyai"),
        ("trajkit run", "babyai_local_", "babyai_local_sft"),
        ("trajkit convert --to", "trl-p", "trl-prompt-completion trl-preference"),
    ],
)
def test_a_value_is_completed_by_what_there_is(folder: Path, line: str, word: str, values: str) -> None:
    offered = [each.split("\t")[0] for each in answered("fish", line, word, folder)]
    assert offered == [f"plain,{each}" for each in values.split()]


def test_a_broken_folder_is_no_error_to_the_shell(tmp_path: Path) -> None:
    (tmp_path / "trajkit.toml").write_text("= nothing")
    (tmp_path / ".trajkit").mkdir()
    (tmp_path / ".trajkit" / "stack.json").write_text("[1")
    (tmp_path / ".trajkit" / "last_store.json").write_text('{"path": "/nowhere"}')
    assert in_bash(tmp_path, "trajkit rollout babyai --variant ", "trajkit show st") == ["", "<files>"]


def answered(shell: str, line: str, word: str, folder: Path) -> list[str]:
    """What a shell is answered."""
    words = str(len(line.split())) if shell == "zsh" else word
    asked = {ASKED: f"{shell}_complete", "COMP_WORDS": f"{line} {word}", "COMP_CWORD": words}
    done = warm.trajkit([], folder, {**os.environ, **asked})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def timed(command: list[str], folder: Path, **environment: str) -> float:
    """The CPU seconds that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, b"")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_zsh_is_answered_in_its_own_form(folder: Path) -> None:
    assert answered("zsh", "trajkit rollout babyai", "--variant=base", folder) == [
        "plain",
        "--variant=baseline",  # they replace the whole word
        "_",
    ]


@pytest.mark.full  # which packages are loaded is looked at every day
@pytest.mark.parametrize("line", ["trajkit rollout babyai --variant", "trajkit lineage"])
def test_completion_is_cheap(folder: Path, line: str) -> None:
    click = [sys.executable, "-c", "import click"]
    asked = {ASKED: "fish_complete", "COMP_WORDS": f"{line} ", "COMP_CWORD": ""}
    taken = min(timed([str(BIN / "trajkit")], folder, **asked) for _ in range(3))
    assert taken < MOST_IMPORTS_OF_CLICK * min(timed(click, folder) for _ in range(3))


def test_it_is_answered_without_the_heavy_packages(folder: Path) -> None:
    code = (
        "import atexit, sys\n"
        "heavy = {'pyarrow', 'duckdb', 'numpy', 'torch', 'rich', 'tomlkit', 'yaml'}\n"
        "atexit.register(lambda: sys.stdout.write(str(sorted(heavy & sys.modules.keys()))))\n"
        "from trajkit.cli.main import main\n"
        "main()\n"
    )
    for line in ("trajkit rollout babyai --task", "trajkit jobs show"):
        asked = {ASKED: "fish_complete", "COMP_WORDS": f"{line} ", "COMP_CWORD": ""}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.endswith("\n[]"), done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_takes_its_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert f"{ASKED}={shell}_complete" in script.read_text()
    subprocess.run([shell, "-n", str(script)], check=True, capture_output=True)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
