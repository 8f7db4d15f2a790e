"""Rows that cannot be read are kept as steps that are not learned, with the reason, or the export fails."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.matrix import daily
from tests.sources.row_database import Row, RowDatabase, row_id, spelled
from tests.sources.shapes import EPISODE, Steps, plain
from trajkit.errors import DataError
from trajkit.schema import Transition

TEXT = [{"type": "text", "text": "hi"}]
CUT = '[{"role":"user","content":[{"type":"file","x'


def reasons(made: list[Transition]) -> list[str | None]:
    return [step.mask_reason for step in made]


def broken() -> Steps:
    """Three steps, of which the second cannot be read."""
    steps = Steps()
    steps.json()
    steps.json(input='{"messages":[')
    steps.json()
    return steps


def test_an_export_with_an_unreadable_row_fails_and_names_it() -> None:
    steps = broken()
    with pytest.raises(DataError, match="1 row cannot be read") as caught:
        steps.export()
    assert f"({steps.inferences[1]['inference_id']}: input is not JSON)" in caught.value.message
    assert caught.value.hint == "--max-bad 1 keeps them, as steps that are not trained on"
    assert caught.value.exit_code == 1


def test_as_many_as_allowed_stay_in_their_places_and_are_counted() -> None:
    tally, made = broken().export(max_bad=1)
    assert reasons(made) == [None, "unreadable: input is not JSON", None]
    assert [step.loss_weight for step in made] == [1, 0, 1]
    assert [(entry.reason, entry.n_steps) for entry in tally.masked] == [("unreadable: input is not JSON", 1)]


def test_what_can_be_read_of_an_unreadable_row_is_kept() -> None:
    steps = Steps()
    steps.json(input="{", raw="said", parsed={})
    steps.json(output="{")
    steps.call(steps.json(calls=0), messages=CUT)
    _, (no_input, no_output, no_prompt) = steps.export(max_bad=3)
    assert (no_input.input, plain(no_input.completion)) == (None, [{"type": "text", "text": "said"}])
    assert no_input.messages is not None
    assert (no_output.completion, no_output.observation) == (None, "go")
    assert (no_prompt.messages, no_prompt.completion is not None) == (None, True)
    assert reasons([no_input, no_output, no_prompt]) == [
        "unreadable: input is not JSON",
        "unreadable: output is not JSON",
        "unreadable: prompt is not JSON",
    ]


NO_MESSAGES = [
    "5",
    '"x"',
    "{}",
    "[5]",
    '[{"role":"user"}]',
    '[{"role":"bot","content":[]}]',
    '[{"content":[]}]',
]


@pytest.mark.full
@pytest.mark.parametrize("n_steps", daily([1, 2], 1))
def test_a_prompt_that_is_no_list_of_messages_is_unreadable(n_steps: int) -> None:
    steps = Steps()
    for text in NO_MESSAGES:
        for _ in range(n_steps):
            steps.json(messages=text)
    _, made = steps.export(max_bad=99)
    assert set(reasons(made)) == {"unreadable: prompt is not a list of messages"}
    assert [step.messages for step in made] == [None] * len(made)


def test_every_column_of_json_is_looked_at_when_one_cannot_be_read() -> None:
    steps = Steps()
    steps.chat(TEXT)
    columns = {
        "tool_params": "list of tools",
        "dynamic_tools": "list of tools",
        "dynamic_provider_tools": "list of tools",
        "allowed_tools": "list of allowed tools",
        "output": "output",
    }
    for column in columns:
        row = {"output": TEXT, "allowed_tools": '{"tools":[],"choice":"explicit"}', column: '{"a'}
        steps.chat(row.pop("output"), **row)
    _, made = steps.export(max_bad=len(columns))
    assert reasons(made) == [None, *(f"unreadable: {words} is not JSON" for words in columns.values())]


BYTES = b'[{"role":"user","content":[{"type":"text","text":"na\xefve"}]}]'


def test_bytes_that_are_not_text_are_shown_as_such_and_the_step_is_not_learned() -> None:
    steps = Steps()
    steps.json()
    steps.json(input=b'{"messages":[{"role":"user","content":[{"type":"text","text":"\xff"}]}]}')
    steps.json(messages=BYTES)
    steps.json(tags=b'{"who":"\xfe"}')
    steps.json(function_name=b"a\xffb")
    _, made = steps.export(max_bad=9)
    assert reasons(made) == [None, *["unreadable: text is not UTF-8"] * 4]
    assert made[1].observation == "\ufffd"
    assert made[2].messages is not None
    assert made[2].messages[0].text == "na\ufffdve"
    assert made[4].function_name == "a\ufffdb"


@pytest.mark.full
def test_feedback_that_is_not_text_is_kept_and_named() -> None:
    steps = Steps()
    steps.json()
    feedback = [
        {
            "feedback_id": row_id(900),
            "target_id": EPISODE,
            "kind": "comment",
            "metric_name": "comment",
            "value": b'"na\xefve"',
            "tags": {"key": b"\xff"},
        }
    ]
    database = RowDatabase(steps.inferences, steps.calls, feedback=feedback)
    with pytest.raises(DataError, match=f"{row_id(900)}: text is not UTF-8"):
        steps.export(database)
    _, made = steps.export(database, max_bad=1)
    assert reasons(made) == [None]


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


EXTREMES = (
    "123456789012345678901234567890",
    "-9223372036854775809",
    "0.1000000000000000055511151231257827",
    "1e308",
    deep(100),
    '"\\u0000"',
    '"\\ud83d\\ude42"',
    f'"{"x" * 1_000_000}"',
)


@pytest.mark.full
def test_extreme_json_is_kept_or_set_aside() -> None:
    steps = Steps()
    for text in EXTREMES:
        said = '{"role":"user","content":[{"type":"text","text":"x"}]}'
        steps.json(
            input=f'{{"messages":[{said}],"extra":{text}}}',
            messages=f'[{{"role":"user","content":[{{"type":"unknown","data":{text}}}]}}]',
        )
        steps.json(output=f'{{"raw":"x","parsed":{{"action":{text}}}}}')
        steps.chat(f'[{{"type":"unknown","data":{text}}}]')
    _, made = steps.export(max_bad=3 * len(EXTREMES))
    assert len(made) == 3 * len(EXTREMES)
    assert all(reason is None or reason.startswith("unreadable") for reason in reasons(made))


@pytest.mark.full
@pytest.mark.parametrize(
    "value", daily([deep(5_000), "1e400", "[1,]"], 1), ids=["deep", "too large", "a comma"]
)
def test_json_that_only_some_read_says_where_it_is_when_python_reads_it(value: str) -> None:
    steps = Steps()
    steps.json(input=f'{{"messages":[],"extra":{value}}}')
    with pytest.raises(DataError, match=f"episode {EPISODE}: (steps[.])?input"):
        steps.export()


# -- made by chance ------------------------------------------------------------------------------------------

GARBAGE: tuple[str | bytes, ...] = (
    "",
    "null",
    "5",
    '"text"',
    "[]",
    "{}",
    "[[]]",
    "{",
    "not json",
    "'[]'",
    b"\xff\xfe",
    '{"messages":5}',
    '{"raw":5,"parsed":[1]}',
    '[{"type":"tool_call"}]',
    '[{"type":"text"}]',
    '[{"role":"user","content":null}]',
    '[{"role":"user","content":{"type":"text","text":"x"}}]',
    '[{"role":"user","content":"x"},{"role":"tool","content":[]}]',
    f'[{{"x":{deep(100)}}}]',
    '{"a":1e400}',
    "99999999999999999999999999",
    '{"tools_available":7}',
    '{"tools":"all","choice":"explicit"}',
    '"{\\"tools_available\\":[]}"',
)
TEXTS = (
    "go",
    "",
    'a "quoted" word',
    "naïve 名 🙂",
    "back\\slash\n",
    '"type":"file"',
    "},{",
    "\\u0041",
    "\x1f\x7f",
)


def text_row(rnd: random.Random) -> Row:
    """A step in one of the usual shapes, and what its answer is."""
    text = rnd.choice(TEXTS)
    said: list[Any] = [{"type": "text", "text": text}]
    user = {"role": "user", "content": [{"type": "text", "text": rnd.choice(TEXTS)}]}
    if rnd.random() < 0.4:
        user = {
            "role": "user",
            "content": [{"type": "text", "value": text}, {"type": "raw_text", "value": "r"}],
        }
    is_chat = rnd.random() < 0.5
    if is_chat and rnd.random() < 0.5:
        call = {"type": "tool_call", "id": "c", "raw_name": "m", "raw_arguments": text}
        said.append({**call, "name": None, "arguments": None})
    return {
        "function_type": "chat" if is_chat else "json",
        "input": spelled({"messages": [user]}),
        "output": spelled(said if is_chat else {"raw": text, "parsed": rnd.choice([None, {"action": text}])}),
        "auxiliary_content": None if is_chat else rnd.choice(["", "[]", '[{"type":"thought","text":"t"}]']),
        "tool_params": rnd.choice(["", '{"tools_available":[{"name":"m"}]}']) if is_chat else None,
        "allowed_tools": rnd.choice([None, '{"tools":["m"],"choice":"explicit"}']) if is_chat else None,
        "messages": spelled([user] * rnd.randrange(1, 3)),
    }


def spoiled(rnd: random.Random, value: str | None) -> str | bytes:
    """A text with something wrong with it."""
    if value is None or rnd.random() < 0.5:
        return rnd.choice(GARBAGE)
    raw = value.encode()
    place = rnd.randrange(len(raw) + 1)
    match rnd.randrange(3):
        case 0:
            return raw[:place]
        case 1:
            return raw[:place] + bytes([rnd.randrange(256)]) + raw[place:]
        case _:
            return raw[:place] + raw[place + rnd.randrange(1, 4) :]


SPOILED = (
    "input",
    "output",
    "auxiliary_content",
    "tool_params",
    "dynamic_tools",
    "allowed_tools",
    "messages",
)


def is_json(value: str | bytes | None) -> bool:
    """Whether a text is JSON that every reader takes."""

    def finite(text: str) -> float:
        if not math.isfinite(found := float(text)):
            raise ValueError(text)
        return found

    try:
        json.loads(value or "null", parse_constant=finite, parse_float=finite)
    except (ValueError, RecursionError):
        return False
    return True


def is_loose_json(value: str | bytes) -> bool:
    """Whether DuckDB takes a text for JSON and others do not: NaN, 1e400, [1,]. TensorZero writes none."""
    if is_json(value) or isinstance(value, bytes):
        return False
    ((is_valid,),) = duckdb.execute("SELECT json_valid(?)", [value]).fetchall()
    return bool(is_valid)


N_ROWS = 1024


def test_whatever_the_rows_hold_each_is_a_step_and_says_what_is_wrong() -> None:
    each_is_a_step(list(range(N_ROWS)))


@pytest.mark.full
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.large_base_example, HealthCheck.data_too_large, HealthCheck.too_slow],
)
@given(seeds=st.lists(st.integers(0, 2**32 - 1), min_size=N_ROWS, max_size=N_ROWS))
def test_whatever_twenty_thousand_rows_hold_each_is_a_step_and_says_what_is_wrong(seeds: list[int]) -> None:
    each_is_a_step(seeds)


def each_is_a_step(seeds: list[int]) -> None:
    """Export a row for each seed, made by it, and look at every step."""
    steps = Steps()
    wrong: list[dict[str, str | bytes]] = []
    for seed in seeds:
        rnd = random.Random(seed)
        row = text_row(rnd)
        names = rnd.sample(SPOILED, rnd.choice((0, 0, 1, 1, 2)))
        found = {name: spoiled(rnd, row.get(name)) for name in names}
        wrong.append({name: value for name, value in found.items() if not is_loose_json(value)})
        row |= wrong[-1]
        (steps.chat if row["function_type"] == "chat" else steps.json)(**{"output": row["output"]} | row)
    tally, made = steps.export(max_bad=N_ROWS)
    assert len(made) == N_ROWS == tally.n_steps_kept
    ids = [row["inference_id"] for row in steps.inferences]
    assert [step.inference_id for step in made] == ids
    for step, row, found in zip(made, steps.inferences, wrong, strict=True):
        if not found:
            answer = json.loads(row["output"])
            expected = answer if row["function_type"] == "chat" else [answer["raw"]]
            assert len(plain(step.completion)) == len(expected) + (row["auxiliary_content"] or "").count(
                "thought"
            )
            assert step.messages is not None
            assert not (step.mask_reason or "").startswith("unreadable")
        for name, value in found.items():
            is_needed = name in ("input", "output", "messages")
            if is_needed and value and not is_json(value):
                assert (step.mask_reason or "").startswith(("unreadable", "prompt unknown")), (name, value)
    n_masked = sum(entry.n_steps for entry in tally.masked)
    assert n_masked == sum(step.mask_reason is not None for step in made)
