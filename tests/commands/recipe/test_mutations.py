"""Recipes with bytes, lines and values changed by chance: each has a plan or an error in words.

The seeds are fixed. `TRAJKIT_FUZZ=40` tries forty times as many.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from tests.sources.files.test_mutations import changed
from trajkit.cli.main import run
from trajkit.commands.recipe.yaml_text import read_yaml, write_yaml

FACTOR = int(os.environ.get("TRAJKIT_FUZZ", "1"))
N_CASES = 10 * FACTOR
"""Of each recipe."""
MOST_SECONDS = 60
"""Of processor time, for one plan; usual are 0.02."""
RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))
PIECES = (
    "[" * 2_000,
    "- " * 2_000,
    "a: " * 200,
    "{" * 50,
    "&a [*a]",
    "*a",
    "!!python/object:os.system x",
    "${good}",
    "${",
    "\x00",
    "\ud800",
    "\x1b]0;x\x07",
    "\t",
    "'",
    "1e999",
    "9" * 5_000,
    ".",
    "/dev/zero",
    "../..",
    "null",
    "\n---\n",
)


def mangled(text: str, chance: random.Random) -> bytes:
    """The file with bytes flipped, cut or put in, a line doubled or gone."""
    data = text.encode()
    at = chance.randrange(len(data))
    lines = text.splitlines(keepends=True)
    match chance.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return bytes([*data[:at], data[at] ^ 1 << chance.randrange(8), *data[at + 1 :]])
        case 2:
            return data[:at] + chance.choice(PIECES).encode("utf-8", "surrogatepass") + data[at:]
        case 3:
            del lines[chance.randrange(len(lines))]
        case _:
            lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    return "".join(lines).encode()


def written(document: dict[str, Any]) -> bytes:
    """A changed recipe as YAML; what has no form in it is its Python text."""
    try:
        return write_yaml(document).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        return repr(document).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("recipe", daily(RECIPES, 3), ids=lambda path: path.stem)
def test_a_mangled_recipe_has_a_plan_or_an_error(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("babyai", "babyai_tools"):
        shutil.copytree(recipe.parent / name, tmp_path / name)
    text = recipe.read_text("utf-8")
    document = dict(read_yaml(recipe).data)
    failures = []
    for seed in range(N_CASES):
        chance = random.Random(f"{recipe.stem} {seed}")
        content = mangled(text, chance) if chance.random() < 0.5 else written(changed(document, chance))
        Path("recipe.yaml").write_bytes(content)
        began = time.process_time()
        try:
            code: Any = run(["run", "recipe.yaml", "-o", "run", "--dry-run"])
        except Exception as error:  # noqa: BLE001 -- what escapes is what is looked for
            code = f"{type(error).__name__}: {str(error)[:300]}"
        if code not in (0, 1, 2) or "Traceback" in capsys.readouterr().err:
            failures.append(f"case {seed}: {code}")
        elif time.process_time() - began > MOST_SECONDS:
            failures.append(f"case {seed}: {time.process_time() - began:.0f} s")
        if Path("run").exists():
            failures.append(f"case {seed}: a dry run left its folder")
            shutil.rmtree("run")
    assert not failures, "\n".join(failures)
