"""Recorded BabyAI episodes; environments of somebody's own, written for a test."""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRACES = Path(__file__).parents[1] / "data" / "babyai_traces"

OURS = """
import random


class Steps:
    '''Ends with success after five steps.'''

    def reset(self, seed):
        self.n, self.place = 0, random.Random(seed).randrange(1000)
        return 'Take five steps.', f'You stand at {self.place}.'

    def step(self, text):
        self.n += 1
        return f'You stand at {self.place + self.n}.', float(self.n == 5), self.n == 5, False
"""
"""The least that an environment is; tests make theirs from it."""

_number = itertools.count()


@pytest.fixture(scope="session")
def traces() -> list[dict[str, Any]]:
    episodes = []
    for path in sorted(TRACES.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            episodes += [json.loads(line) for line in lines]
    return episodes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own; what it adds to Python's path is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def module(folder: Path) -> Callable[[str], str]:
    """Write a module into the working folder, below `OURS`; its name, which no other test uses."""

    def write(text: str) -> str:
        name = f"written_{next(_number)}"
        (folder / f"{name}.py").write_text(OURS + textwrap.dedent(text), encoding="utf-8")
        return name

    return write
