"""docs/train.md names only commands and options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click

from trajkit.cli.main import cli
from trajkit.training.local.recipe import LocalRecipe

PAGE = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")


def test_what_the_page_sets_is_in_the_recipe() -> None:
    named = set(re.findall(r"--set\s+([a-z_]+)[.=]", PAGE))
    assert named == {"group_by_length", "early_stopping_patience", "lora", "play", "num_processes", "fsdp"}
    assert named <= set(LocalRecipe.model_fields)


def test_the_commands_on_jobs_exist() -> None:
    named = set(re.findall(r"trajkit jobs ([a-z]+)", PAGE))
    assert named == set(group("jobs").commands) - {"show", "pause"}


def group(name: str) -> click.Group:
    """The command of this name, which has others below it."""
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, click.Group)
    return found
