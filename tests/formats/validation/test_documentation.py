"""The console blocks of docs/validate.md print what is shown; `...` stands for what is left out."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pages import printed
from trajkit.cli.tokens import tokens
from trajkit.cli.validate import TARGETS, validate
from trajkit.formats.validation import target

PAGE = (Path(__file__).parents[3] / "docs" / "validate.md").read_text(encoding="utf-8")


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    shown = printed(PAGE, tmp_path)
    assert len(shown) == 5


def test_the_options_that_the_page_names_exist() -> None:
    known = {
        name for command in (validate, tokens) for parameter in command.params for name in parameter.opts
    }
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known


def test_every_target_is_on_the_page_and_in_the_help() -> None:
    assert (
        set(re.findall(r"^\| `([a-z]+)` \|", PAGE, flags=re.MULTILINE)) == set(TARGETS) == set(target.TARGETS)
    )
