"""The pages of docs/ build as a static site without a warning, and describe every key of trajkit.toml."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from tests.pages import BIN, blocks
from trajkit._core.settings import Project, Reservation

ROOT = Path(__file__).parents[2]


def test_the_site_builds_in_strict_mode(tmp_path: Path) -> None:
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    command = [str(BIN / "zensical"), "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "choosing" / "index.html").exists()


def test_every_page_is_in_the_navigation() -> None:
    sections = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    listed = {page for section in sections for pages in section.values() for page in pages}
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_the_page_of_settings_describes_every_key() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    keys = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert keys == [*Project.model_fields, *Reservation.model_fields]
    (example,) = blocks(page, "toml")
    assert Project.model_validate(tomllib.loads(example)).reserved
