"""Fireworks' rows: a real weight for the row as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trajkit.formats.base import Example, LossKind, one_answer
from trajkit.formats.fireworks import FIREWORKS
from trajkit.formats.validation.file import validate
from trajkit.schema import message

TALK = tuple(message(role, text) for role, text in (("user", "hi"), ("assistant", "yo"), ("user", "and")))


@pytest.mark.parametrize("weight", [0.25, 1.0, 3.5])
def test_the_weight_of_a_step_is_that_of_its_row(weight: float) -> None:
    example = one_answer(TALK, message("assistant", "so"), weight=weight)
    row = FIREWORKS.row(example)
    assert row.value["weight"] == weight
    assert [one.get("weight") for one in row.value["messages"]] == [None, 0, None, None]
    assert not row.losses
    assert FIREWORKS.read(row.value) == example


def test_answers_of_the_same_weight_share_it_and_others_are_counted() -> None:
    talk = (*TALK, message("assistant", "so"))
    same = Example(talk, (0, 0.5, 0, 0.5))
    assert FIREWORKS.row(same).value["weight"] == 0.5
    assert FIREWORKS.read(FIREWORKS.row(same).value) == same
    mixed = FIREWORKS.row(Example(talk, (0, 0.5, 0, 2.0)))
    assert mixed.value["weight"] == 1.0
    assert [(loss.kind, loss.where) for loss in mixed.losses] == [
        (LossKind.PARTIAL_WEIGHT, "messages.1"),
        (LossKind.PARTIAL_WEIGHT, "messages.3"),
    ]


def test_a_file_of_such_rows_is_what_fireworks_takes(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [FIREWORKS.row(one_answer(TALK, message("assistant", "so"), weight=w)).value for w in (0.5, 1, 2)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert validate(path, target="fireworks").n_errors == 0
