"""The console blocks of docs/convert.md print what is shown; `...` stands for what differs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tests.pages import printed
from trajkit.cli.main import cli
from trajkit.formats import known

PAGE = (Path(__file__).parents[3] / "docs" / "convert.md").read_text(encoding="utf-8")


def convert() -> click.Command:
    command = cli.get_command(click.Context(cli), "convert")
    assert command is not None
    return command


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    shown = printed(PAGE, tmp_path)
    assert len(shown) == 6


def test_the_options_and_formats_that_the_page_names_exist() -> None:
    options = {name for parameter in convert().params for name in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert named - options == set()
    assert len(named) > 8


def test_the_help_lists_every_format() -> None:
    (table,) = (part for part in (convert().help or "").split("\n\n") if "openai-sft  " in part)
    listed = set(re.findall(r"[a-z]+(?:-[a-z]+)*", table))
    assert set(known()) <= listed
