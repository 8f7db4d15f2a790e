"""Recipes as files in an empty working folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

CHOOSE = """\
version: 1
name: choose
steps:
  good:
    verb: select
    store: sample:babyai
    where: purpose = 'train' and episode_return >= 0.7
  sides:
    verb: split
    store: ${good}
    ratio: train=0.8,val=0.2
  checked:
    verb: leak
    train: ${sides}/train
    evaluation: ${sides}/val
"""


@pytest.fixture
def write() -> Callable[[str], str]:
    """Write a recipe, and name its file."""

    def write(text: str) -> str:
        Path("recipe.yaml").write_text(text, encoding="utf-8")
        return "recipe.yaml"

    return write
