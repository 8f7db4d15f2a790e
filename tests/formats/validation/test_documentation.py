"""The console blocks of docs/validate.md print what is shown; `...` stands for what is left out."""

from __future__ import annotations

import re
from pathlib import Path

import click

from trajkit.cli.main import cli
from trajkit.formats.validation import target

PAGE = (Path(__file__).parents[3] / "docs" / "validate.md").read_text(encoding="utf-8")


def parameters(name: str) -> list[click.Parameter]:
    command = cli.get_command(click.Context(cli), name)
    return command.params


def test_every_target_is_on_the_page_and_in_the_help() -> None:
    on_page = set(re.findall(r"^\| `([a-z]+)` \|", PAGE, flags=re.MULTILINE))
    for command in ("validate", "tokens"):
        (option,) = (each for each in parameters(command) if each.name == "target")
        assert isinstance(option.type, click.Choice)
        assert on_page == set(option.type.choices) == set(target.TARGETS)
