"""docs/hosted.md names only options, profiles and variables that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click

from trajkit.cli.main import cli
from trajkit.training.hosted.answer import way_out
from trajkit.training.hosted.openai.client import PROFILES

PAGE = (Path(__file__).parents[3] / "docs" / "hosted.md").read_text(encoding="utf-8")


def test_the_profiles_are_all_there_with_their_variables() -> None:
    named = set(re.findall(r"--profile ([a-z]+)", PAGE))
    assert named == set(PROFILES) - {"openai", "other"}
    assert all(profile.key_variable in PAGE for profile in PROFILES.values())
    assert PROFILES["openai"].default_model in PAGE


def test_the_commands_on_jobs_exist() -> None:
    named = set(re.findall(r"trajkit jobs ([a-z]+)", PAGE))
    assert named == set(group("jobs").commands) - {"list"}


def test_every_failure_of_the_table_has_a_way_out() -> None:
    table = PAGE.partition("| the job failed with |")[2]
    failures = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (.*?) \| ", table, re.MULTILINE)))
    assert len(failures) == 8
    for text in failures:
        text = text.replace("\\", "").replace("Line 1", "where every line is a JSON dictionary. Line 1")
        assert way_out(None, text, rows=Path("rows.jsonl"), rules="openai") is not None, text


def group(name: str) -> click.Group:
    """The command of this name, which has others below it."""
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, click.Group)
    return found
