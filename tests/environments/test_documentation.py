"""`docs/environments.md` shows the example as it is, and does what it says."""

from __future__ import annotations

import ast
import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.pages import blocks, printed
from trajkit.environments import typed_environment
from trajkit.environments.base import Playable
from trajkit.environments.gym import TextOptions
from trajkit.rollouts.gateway.venue import Venue, check_metrics
from trajkit.rollouts.preparation import look
from trajkit.stack.gateway_config import read_config

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "environments.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples to work in."""
    return shutil.copytree(DOCS / "examples", tmp_path / "examples")


def test_the_example_is_shown_as_it_is() -> None:
    shown = re.search(r"<!-- example: (\S+) -->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    assert shown is not None
    assert shown[2] == (DOCS / "examples" / shown[1]).read_text(encoding="utf-8")
    assert len(shown[2].splitlines()) <= 45


@pytest.mark.full
def test_console_blocks_run_and_print_what_is_shown(examples: Path) -> None:
    assert len(printed(PAGE, examples)) == 5


def test_python_blocks_run(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(examples)
    monkeypatch.syspath_prepend(examples)
    code = blocks(PAGE, "python")
    assert len(code) == 3
    for block in code:
        exec(block, {})


def test_the_gateway_of_the_example_declares_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(DOCS / "examples"), *sys.path])
    info = typed_environment("guess_number:GuessNumber")
    names = read_config(DOCS / "examples" / "guess_number_gateway" / "tensorzero.toml")
    metrics = look(info, "easy", 0).metrics

    assert metrics == ("found", "n_guesses", "episode_return")
    check_metrics(Venue("example", names), metrics)
    assert names.functions == {"act": ("baseline",)}


def test_every_setting_of_the_adapter_is_in_the_table() -> None:
    section = PAGE.partition("## Gymnasium")[2]

    for field in dataclasses.fields(TextOptions):
        assert f"| `{field.name}` |" in section


def test_the_example_has_everything_that_the_table_offers() -> None:
    section = PAGE.partition("The rest is optional")[2].partition("\n\nParameters")[0]
    offered = set(re.findall(r"^\| `(\w+)(?:\(\))?` \|", section, re.MULTILINE))
    tree = ast.parse((DOCS / "examples" / "guess_number.py").read_text(encoding="utf-8"))
    written = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    written |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    written |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    assert {"reset", "step"} <= written & set(dir(Playable))
    assert offered - written == {"env_id", "action_rule", "close"}
