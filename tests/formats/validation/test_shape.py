from __future__ import annotations

from typing import Any

import pytest

from tests.formats.validation.rows import Check, called, chat

ANSWER = [{"role": "assistant", "content": "yes"}]
WORSE = [{"role": "assistant", "content": "no"}]
ASKED = [{"role": "user", "content": "well?"}]
START = {"prompt": ASKED, "environment": "babyai", "task": "goto", "seed": 3}
PAIR: dict[str, Any] = {
    "input": {"messages": ASKED},
    "preferred_output": ANSWER,
    "non_preferred_output": WORSE,
}


def found(check: Check, *rows: Any, target: str) -> set[str]:
    return {f"{finding.path} {finding.kind}" for finding in check(*rows, target=target).findings}


def test_a_preference_row_is_taken(check: Check) -> None:
    assert found(check, *[PAIR] * 10, target="openai") == set()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"input": None}, '$.input an object with "messages" is expected, not null'),
        ({"input": {"messages": ASKED, "id": 1}}, "$.input.id extra key"),
        ({"input": {"messages": ASKED + ANSWER}}, "$.input.messages[1] the input ends with an answer"),
        ({"preferred_output": ANSWER * 2}, "$.preferred_output not one assistant message"),
        ({"preferred_output": ASKED}, "$.preferred_output[0].role not the assistant's"),
        ({"non_preferred_output": ANSWER}, "$.non_preferred_output both answers are the same"),
        (
            {"preferred_output": [ANSWER[0] | {"weight": 1}]},
            "$.preferred_output[0].weight weight in a preference",
        ),
        ({"margin": 1}, "$.margin extra key"),
        (
            {"preferred_output": called()["messages"][1:]},
            "$.preferred_output[0].tool_calls[0].function.name call of a tool that the row does not declare",
        ),
    ],
)
def test_a_flaw_of_a_preference_is_found(check: Check, change: dict[str, Any], expected: str) -> None:
    assert expected in found(check, PAIR | change, *[PAIR] * 9, target="openai")


def test_a_file_of_mixed_kinds_is_refused(check: Check) -> None:
    assert found(check, *[chat()] * 9, PAIR, target="openai") == {"$ a row of another kind than the first"}


def test_a_row_of_no_kind_is_refused_with_what_is_taken(check: Check) -> None:
    (finding,) = check({"x": 1}, target="fireworks").findings[:1]
    assert (finding.kind, finding.value) == ("not a row that is accepted", "keys: x")
    assert "preferred_output" in finding.hint


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "a", "completion": "b"}, None),
        ({"prompt": ASKED, "completion": ANSWER}, None),
        ({"prompt": ASKED, "completion": ANSWER, "label": True}, None),
        ({"prompt": ASKED, "chosen": ANSWER, "rejected": WORSE}, None),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, None),
        ({"text": "hi"}, None),
        ({"input_ids": [1, 2], "labels": [-100, 2]}, None),
        ({"prompt": "a ", "completion": "b"}, "$.prompt the prompt ends with a space"),
        ({"prompt": "a", "completion": ANSWER}, "$ prompt and completion are not of one kind"),
        ({"prompt": "a", "completion": ""}, "$.completion empty completion"),
        ({"prompt": ASKED, "completion": ASKED}, "$.completion it does not end with the assistant"),
        (
            {"prompt": ASKED, "completion": ANSWER + ASKED + ANSWER},
            "$.completion a completion of several turns",
        ),
        (
            {"prompt": ASKED, "completion": ANSWER, "label": 1},
            "$.label true or false is expected, not a number",
        ),
        ({"prompt": ASKED, "chosen": ANSWER, "rejected": ANSWER}, "$.rejected both answers are the same"),
        ({"chosen": ANSWER, "rejected": WORSE}, "$.prompt no prompt"),
        ({"text": ""}, "$.text a text that is not empty is expected, not a text"),
        ({"input_ids": [1, 2], "labels": [-100, -100]}, "$.labels nothing to learn"),
        ({"input_ids": [1, 2], "completion_mask": [1]}, "$.completion_mask not as long as input_ids"),
        ({"input_ids": ["a"]}, "$.input_ids not a list of tokens"),
        (START, None),
        (START | {"prompt": "go"}, "$.prompt a list of messages is expected, not a text"),
        (START | {"prompt": ASKED + ANSWER}, "$.prompt the prompt does not end with the user"),
        (START | {"task": ""}, "$.task a text that is not empty is expected, not a text"),
        (START | {"seed": None}, "$.seed a whole number from 0 is expected, not null"),
    ],
)
def test_the_kinds_of_rows_that_trl_takes(check: Check, row: dict[str, Any], expected: str | None) -> None:
    assert found(check, row, target="trl") == (set() if expected is None else {expected})
