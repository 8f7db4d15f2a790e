"""Code that data names is not run: environments, settings, models and their weights, by any command."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit._core.samples import model_path
from trajkit.cli.main import run
from trajkit.schema import Episode, LineageEntry, message
from trajkit.store.writer import write_episodes

EVIL = """
from pathlib import Path

Path({mark!r}).write_text("run")


class Env:
    def reset(self, seed): return "m", "o"
    def step(self, text): return "o", 1.0, True, False


def describe(observation): return "o"
"""
NAMES = ("stores.theirs.evil:Env", "evil_mod:Env", "gym:evil_mod:Maze-v0", "gym:evil_mod", "evil_mod")

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is there once somebody's code ran; the code can be imported from the working folder."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("evil_mod", "stores.theirs.evil"):  # what was imported before runs only once
        monkeypatch.delitem(sys.modules, name, raising=False)
    mark = tmp_path / "mark"
    Path("stores/theirs").mkdir(parents=True)
    for path in ("evil_mod.py", "stores/theirs/evil.py"):
        Path(path).write_text(EVIL.format(mark=str(mark)), encoding="utf-8")
    return mark


def store(path: str, env_id: str, env_settings: dict[str, str] | None = None) -> str:
    """A store of two attempts at one world whose episodes and lineage name code."""
    steps: list[dict[str, Any]] = [
        {"step_index": 0, "observation": "o", "action": each, "reward": reward, "terminated": True}
        | {"messages": [message("user", "o")], "completion": message("assistant", each)}
        for each, reward in (("a", 1.0), ("b", 0.0))
    ]
    fields = {"source": "t", "env_id": env_id, "task": "default", "seed": 1, "initial_state_hash": "0" * 64}
    episodes = [
        {"episode_id": name, "steps": [step], "metrics": {"episode_return": step["reward"]}}
        for name, step in zip("ab", steps, strict=True)
    ]
    counts = {f"n_{what}_{way}": 2 for what in ("episodes", "steps") for way in ("in", "out")}
    entry = {"verb": "rollout", "done_at": datetime(2026, 1, 1, tzinfo=UTC), "trajkit_version": "0.1.0"}
    told = {"env_id": env_id, "env_name": env_id, "env_settings": env_settings or {}}
    write_episodes(
        Path(path),
        [Episode.model_validate(fields | each) for each in episodes],
        kind="rollout",
        lineage=[LineageEntry.model_validate(entry | counts | {"arguments": told})],
    )
    return path


@pytest.mark.parametrize("env_id", daily(NAMES, 1))
def test_no_command_runs_the_environment_that_a_store_names(mark: Path, env_id: str) -> None:
    theirs = store("stores/theirs/data", env_id)
    Path("recipe.yaml").write_text(
        f"version: 1\nname: r\nsteps:\n  again:\n    verb: replay\n    store: {theirs}\n", encoding="utf-8"
    )
    commands = [
        ["replay", theirs],
        ["replay", theirs, "--workers", "2"],
        ["replay", theirs, "--only-verified", "-o", "out"],
        ["pairs", theirs, "--margin", "0.1", "-o", "pairs.parquet"],
        ["mask", theirs, "--reason", "no-op", "-o", "masked"],
        ["leak", theirs, "sample:babyai"],
        ["report", theirs],
        ["stats", theirs],
        ["show", theirs, "a"],
        ["convert", theirs, "--to", "openai-sft", "-o", "out.jsonl"],
        ["run", "recipe.yaml", "-o", "made", "--yes"],
    ]
    for command in commands:
        assert run(command) in (0, 1, 2), command
        assert not mark.exists(), command


def test_replay_says_how_the_environment_is_named(mark: Path, capsys: Printed) -> None:
    theirs = store("data", "evil_mod:Env")
    assert run(["replay", theirs]) == 1
    assert "2 × no environment of trajkit's (evil_mod:Env): name it with --env" in capsys.readouterr().err
    assert not mark.exists()
    assert run(["replay", theirs, "--env", "evil_mod:Env"]) == 1  # it was typed; the world is another one
    assert mark.exists()


def test_settings_that_a_lineage_names_import_nothing(mark: Path, capsys: Printed) -> None:
    Path("mine_of_h.py").write_text(
        "from collections.abc import Callable\nfrom pathlib import Path\n"
        "class Env:\n"
        "    def __init__(self, look: Callable[[str], str] | None = None, level: Path = Path('x')): pass\n"
        "    def reset(self, seed): return 'm', 'o'\n"
        "    def step(self, text): return 'o', 1.0, True, False\n",
        encoding="utf-8",
    )
    for name, value in (("look", "evil_mod:describe"), ("level", "/etc/passwd")):
        theirs = store(f"data_{name}", "mine_of_h:Env", {name: value})
        for command in (["replay", theirs], ["pairs", theirs, "--margin", "0.1", "-o", "p.parquet"]):
            assert run([*command, "--env", "mine_of_h:Env"]) == 2
            assert f"the setting {name}='{value}' is not typed with --env-set" in capsys.readouterr().err
            assert not mark.exists()
    assert run(["replay", theirs, "--env", "mine_of_h:Env", "--env-set", "look=evil_mod:describe"]) == 1
    assert mark.exists()


def test_training_does_not_play_an_environment_that_a_store_names(mark: Path, capsys: Printed) -> None:
    theirs = store("data", "evil_mod:Env")
    chosen = ["--best-by", "episode_return", "--best-seeds", "1:2", "--set", "play.config=x.toml"]
    named = ["--set", "play.function=f", "--set", "play.variant=v"]
    command = ["sft", "local", "--model", "sample:tiny-base", "--train", theirs, "--val", "sample:babyai"]
    assert run([*command, *chosen, *named, "--allow-leak", "--dry-run"]) == 2
    assert "trajkit has no environment 'evil_mod:Env'" in capsys.readouterr().err
    assert not mark.exists()


@pytest.fixture
def model(mark: Path) -> Path:
    """A model whose configuration and tokenizer ask for code that comes with it."""
    folder = Path("model")
    shutil.copytree(model_path("sample:tiny-base"), folder)
    (folder / "evil.py").write_text(Path("evil_mod.py").read_text(encoding="utf-8"), encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kinds = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM", "AutoModel"), "evil.Env")
    told = config | {"model_type": "evil", "auto_map": kinds | {"AutoTokenizer": ["evil.Env", "evil.Env"]}}
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer |= {"tokenizer_class": "Env", "auto_map": {"AutoTokenizer": ["evil.Env", "evil.Env"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def with_model(name: str) -> list[list[str]]:
    """Commands that load a model or its tokenizer."""
    return [
        ["tokens", "sample:babyai", "--model", "gpt-4.1-mini", "--tokenizer", name],
        ["rollout", "babyai", "--policy", "local", "--model", name, "--episodes", "1", "-o", "played"],
        ["sft", "local", "--model", name, "--train", "sample:babyai", "--yes"],
    ]


def test_the_code_of_a_model_is_not_run_and_nobody_is_asked_to(
    mark: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    for command in with_model(str(model)):
        answers = io.StringIO("y\n" * 9)
        monkeypatch.setattr("sys.stdin", answers)
        assert run(command) in (1, 2), command
        assert answers.tell() == 0, command
        assert not mark.exists(), command
        assert "contains custom code which must be executed" in capsys.readouterr().err, command


class _Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_pickled_weights_run_nothing(mark: Path, capsys: Printed) -> None:
    folder = Path("model")
    shutil.copytree(model_path("sample:tiny-base"), folder)
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": _Runs(mark)}, protocol=2))
    for command in with_model(str(folder))[1:]:
        assert run(command) in (1, 2), command
        assert not mark.exists(), command
        assert "its weights are a pickle that runs code" in capsys.readouterr().err, command
