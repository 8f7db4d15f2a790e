"""docs/register.md does what it says: its console blocks print what is shown, beside a copy of the recipe."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click

from tests.pages import blocks, console, printed
from trajkit.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "register.md").read_text(encoding="utf-8")


def test_the_console_blocks_print_what_is_shown(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes" / "babyai", tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "tensorzero.toml").read_bytes()
    shown = printed(PAGE, tmp_path, OPENAI_API_KEY="")
    assert len(shown) == 5
    assert (tmp_path / "tensorzero.toml").read_bytes() == before  # all was taken back


def test_the_options_that_the_page_names_exist() -> None:
    found = [cli.get_command(click.Context(cli), name) for name in ("register", "lineage")]
    known = {name for command in found if command for each in command.params for name in each.opts}
    commands = [each.command for each in console(PAGE)] + "".join(blocks(PAGE, "sh")).splitlines()
    used = {word for line in commands for word in shlex.split(line, comments=True) if word.startswith("--")}
    named = used | set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert len(named) > 12
    assert named <= known
