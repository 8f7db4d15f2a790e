"""The console blocks of docs/convert.md print what is shown; `...` stands for what differs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from trajkit.cli.main import cli
from trajkit.formats import known

PAGE = (Path(__file__).parents[3] / "docs" / "convert.md").read_text(encoding="utf-8")


def convert() -> click.Command:
    command = cli.get_command(click.Context(cli), "convert")
    return command


def test_the_help_lists_every_format() -> None:
    (table,) = (part for part in (convert().help or "").split("\n\n") if "openai-sft  " in part)
    listed = set(re.findall(r"[a-z]+(?:-[a-z]+)*", table))
    assert set(known()) <= listed
