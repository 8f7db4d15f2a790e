"""The console blocks of docs/export.md print what is shown; `...` stands for what is left out."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tests.pages import printed
from trajkit.cli.main import cli

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    shown = printed(PAGE, tmp_path)
    assert len(shown) == 4


def test_the_options_that_the_page_names_exist() -> None:
    export = cli.get_command(click.Context(cli), "export")
    assert export is not None
    known = {name for parameter in export.params for name in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert {"--where", "--as-of", "--targets", "--limit", "--order-by", "--train-function"} <= named
    assert named <= known
