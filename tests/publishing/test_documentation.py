"""docs/publish.md: its commands print what is shown, against a Hub of our own over real HTTP."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tests.pages import printed
from tests.publishing.hub_standin import TOKEN, HubStandin
from trajkit.cli.main import cli
from trajkit.curation.split import split
from trajkit.store.reader import open_store

PAGE = (Path(__file__).parents[2] / "docs" / "publish.md").read_text(encoding="utf-8")


def command_of(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


@pytest.mark.full
def test_the_page_prints_what_is_shown(standin: HubStandin, tmp_path: Path) -> None:
    standin.user = "me"
    split("sample:babyai", tmp_path / "stores" / "split", ratio={"train": 0.8, "val": 0.2})
    environment = {
        "HF_ENDPOINT": standin.url,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    assert len(printed(PAGE, tmp_path, COLUMNS="100", **environment)) == 3
    stores = tmp_path / "stores"
    for side in ("train", "val"):
        digests = {open_store(stores / name / side).manifest.digest for name in ("split", "again")}
        assert len(digests) == 1
    assert standin.dataset("me/goto").private


def test_the_page_names_only_options_that_there_are() -> None:
    known = {
        name
        for command in ("push", "pull")
        for parameter in command_of(command).params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert len(named) > 12
    assert named <= known
