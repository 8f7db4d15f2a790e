"""The pages about recipes: what they print, and what the table says of each recipe."""

from __future__ import annotations

import re
from pathlib import Path

from tests.commands.recipe.conftest import CHOOSE
from tests.pages import printed
from trajkit.commands.recipe.folder import FACTS_FILE, RECIPE_FILE, STEPS_FOLDER
from trajkit.commands.recipe.load import load, packaged

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
TABLE = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    (tmp_path / "choose.yaml").write_text(CHOOSE, encoding="utf-8")
    assert f"```yaml\n{CHOOSE}```" in PAGE
    assert len(printed(PAGE, tmp_path)) == 2
    for name in (FACTS_FILE, RECIPE_FILE, STEPS_FOLDER):
        assert (tmp_path / "out" / name).exists()
        assert f"| `{name}" in PAGE


def test_the_table_has_every_recipe_as_it_says_itself() -> None:
    rows = {row[0]: row[1:] for line in TABLE.splitlines() if (row := _cells(line))}
    for name in packaged():
        recipe = load(name).recipe
        assert [recipe.needs, recipe.minutes, recipe.cost, recipe.leaves] == rows[name][1:5]


def _cells(line: str) -> list[str]:
    found = re.match(r"\| \[`(\w+)\.yaml`\]", line)
    return [found[1], *(cell.strip() for cell in line.split("|")[2:-1])] if found else []
