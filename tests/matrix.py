"""Matrices of cases of which some run every day, and all of them under `make test-all`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def daily(cases: Iterable[Any], some: int | Collection[Any]) -> list[Any]:
    """The cases as parameters: those that are not among `some`, or not of the first so many, are `full`."""
    made = []
    for place, case in enumerate(cases):
        is_daily = place < some if isinstance(some, int) else case in some
        full = () if is_daily else (pytest.mark.full,)
        if isinstance(case, ParameterSet):
            made.append(case._replace(marks=(*case.marks, *full)))
        else:
            made.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=full))
    return made


def examples(few: int, many: int) -> pytest.MarkDecorator:
    """Make a fuzz test a short one every day (`n_examples` is `few`), and a `full` one."""
    return pytest.mark.parametrize("n_examples", [few, pytest.param(many, marks=pytest.mark.full)])


def portions(n: int) -> pytest.MarkDecorator:
    """Split the examples of a test of hypothesis into as many `portion`s; all but the first are `full`."""
    return pytest.mark.parametrize("portion", daily(range(n), 1))
