"""The console blocks of docs/rollouts.md print what is shown; `...` stands for what differs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pages import printed
from trajkit.commands.command import command
from trajkit.commands.rollout import rollout

PAGE = (Path(__file__).parents[2] / "docs" / "rollouts.md").read_text(encoding="utf-8")


def test_the_page_prints_what_is_shown(tmp_path):
    shown = printed(PAGE, tmp_path)
    assert len(shown) == 3


def test_the_options_that_the_page_names_exist():
    known = {name for parameter in command(rollout).params for name in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    of_export = {"--include-abandoned", "--metric"}
    assert len(named) > 15
    assert named - known == of_export
