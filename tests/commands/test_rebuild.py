"""Every verb that makes a store of a store can be carried out again from what its lineage says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trajkit
from tests.curation.conftest import make_attempt
from trajkit.cli.main import run
from trajkit.errors import DataError, RequestError
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes

SCORER = "def words(episode):\n    return len(episode.steps[-1].completion.content[0].text.split())\n"


def episodes() -> list[Any]:
    """Twelve attempts at six worlds, two of which say the same."""
    return [
        make_attempt(
            f"e{number:02}",
            score=(number % 5) / 4,
            seed=number // 2,
            prompts=[f"mail to a{number}@example.org about {number}", "and then"],
            answers=["go forward", "turn left" if number % 3 else "go forward"],
            tags={"customer": f"c{number // 2}"},
        )
        for number in range(12)
    ]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with `stores/all`, `stores/other` and a scorer."""
    monkeypatch.chdir(tmp_path)
    every = episodes()
    write_episodes(Path("stores/all"), every, kind="test")
    write_episodes(Path("stores/other"), [make_attempt("other", seed=5)], kind="test")
    Path("checks.py").write_text(SCORER, encoding="utf-8")
    return tmp_path


def digest(path: str | Path) -> str:
    return open_store(path).manifest.digest


COMMANDS = {
    "select": 'select ALL --where "episode_return > 0.3" -o made',
    "select random": "select ALL --best-of 2 --sample 5 --seed 3 -o made",
    "select many": "select ALL --balance task --max-per-task 9 --top 50% --by tags.customer -o made",
    "select unreserved": "select ALL --unreserved --shortest -o made",
    "control": "select ALL --sample 3 --control -o out/made",
    "dedupe": "dedupe ALL --exact --episodes -o made",
    "dedupe near": "dedupe ALL --near 0.5 --shingle 2 -o made",
    "split": "split ALL --ratio train=0.6,val=0.4 -o out",
    "split count": "split ALL --ratio train=6,val=2 --seed 4 -o out",
    "split by": "split ALL --ratio train=60%,val=20% --by tags.customer --missing leave -o out",
    "split prompt": "split ALL --ratio a=0.5,b=0.5 --by prompt --by task -o out --seed 1",
    "mask": "mask ALL --reason loop --reason no-op --reason after-success --success 'episode_return >= 1' -o made",
    "weight": "weight ALL --scheme exponential --temperature 0.5 --by tags.customer -o made",
    "weight gae": "weight ALL --scheme grpo --no-deviation --normalize task -o made",
    "score": "score ALL --with checks.py:words --name words --optimize min --max-bad 1 -o made",
    "score steps": "score ALL --with builtins:bool --name any --per step -o made",
    "redact": "redact ALL --skip phone --no-gate -o made",
    "leak train": "leak ALL stores/other --drop train --near 0.8 -o made",
    "leak eval": "leak stores/other ALL --drop eval --by tags.customer --strict-text -o made",
    "merge": "merge ALL stores/other --prefer last -o made",
    "export": "export --source ALL --metric episode_return --min 0.5 --tag customer=c1 -o made",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_carried_out_again(name: str, capsys: Any) -> None:
    import shlex

    assert run(shlex.split(COMMANDS[name].replace("ALL", "stores/all"))) == 0
    made = sorted(path.parent for path in Path().rglob("manifest.json") if path.parts[0] != "stores")
    assert made
    for number, path in enumerate(made):
        goal = f"again-{number}"
        assert run(["rebuild", str(path), "-o", goal, "--yes"]) == 0, capsys.readouterr().err
        assert digest(goal) == digest(path)
        again, before = (open_store(each).manifest.lineage[-1] for each in (goal, path))
        assert (again.verb, again.options, again.left) == (before.verb, before.options, before.left)
