"""Conversations in the database, as what is new at each step: against a reference that compares messages."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from trajkit.sources.tensorzero.export.spool import Group, Spool
from trajkit.sources.tensorzero.export.texts.continued import FOUND, continuations

_TEXTS = ("go", "naïve — 你好", 'say "so" \\ now', "tab\there", "a, b]}", "", '},{"role":"user"')


def _message(role: str, chance: random.Random) -> dict[str, Any]:
    """A message as the gateway stores it: a text, a call of a tool, or what the tool said."""
    if chance.random() < 0.5:
        return {"role": role, "content": [{"type": "text", "text": chance.choice(_TEXTS)}]}
    number = chance.randrange(100)
    if role == "assistant":
        call = {"type": "tool_call", "id": f"c{number}", "name": "move", "arguments": f'{{"n": {number}}}'}
        return {"role": role, "content": [call]}
    result = {"type": "tool_result", "name": "move", "result": f"at {number}", "id": f"c{number}"}
    return {"role": role, "content": [result]}


def _as_output(message: dict[str, Any]) -> list[dict[str, Any]]:
    """An answer as a chat function's output stores it."""
    (block,) = message["content"]
    if block["type"] == "text":
        return [block]
    raw = {"raw_name": block["name"], "raw_arguments": block["arguments"]}
    return [block | raw | {"arguments": json.loads(block["arguments"])}]


def _spelled(messages: list[Any], chance: random.Random) -> str:
    """One JSON list in one of several spellings: bytes may differ where messages do not."""
    if chance.random() < 0.15:
        messages = [dict(reversed(message.items())) for message in messages]
    odd = chance.random() < 0.15
    return json.dumps(messages, ensure_ascii=odd, separators=(", ", ": ") if odd else (",", ":"))


def _play(rows: Any, chance: random.Random) -> tuple[str, list[tuple[int, list[Any]] | None]]:
    """Write an episode; its id, and of each step what is kept and new, None where the prompt is unknown."""
    episode_id, system = rows.id(), chance.choice([None, "You play.", 'Play "well"'])
    prompt = [_message("user", chance)]
    found: list[tuple[int, list[Any]] | None] = []
    before: tuple[list[Any], dict[str, Any]] | None = None
    for _ in range(chance.randrange(1, 7)):
        answer = _message("assistant", chance)
        inference_id = rows.chat_step(episode_id, output=_as_output(answer), calls=0)
        sent = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []
        whole = [*sent, *prompt]
        is_known = chance.random() < 0.9
        if is_known:
            rows.call(
                inference_id, user="", text=None, system=system, input_messages=_spelled(prompt, chance)
            )
        found.append(_expected(whole, before) if is_known else None)
        before = (whole, answer) if is_known else None
        prompt, system = _next(prompt, system, answer, chance)
    return episode_id, found


def _next(
    prompt: list[Any], system: str | None, answer: dict[str, Any], chance: random.Random
) -> tuple[list[Any], str | None]:
    """The next prompt: mostly one that goes on, with or without the answer."""
    kind = chance.choices(
        ["on", "without answer", "reset", "again", "other system", "edited"], [8, 2, 1, 1, 1, 1]
    )[0]
    more = [_message("user", chance) for _ in range(chance.choice([1, 1, 2]))]
    if kind == "reset":
        return more, system
    if kind == "again":
        return prompt, system
    if kind == "edited":
        return [*prompt[:-1], *more, *more], system
    if kind == "other system":
        system = "Another."
    return [*prompt, *([answer] if kind != "without answer" else []), *more], system


def _expected(whole: list[Any], before: tuple[list[Any], dict[str, Any]] | None) -> tuple[int, list[Any]]:
    if before is None or len(whole) <= len(before[0]) or whole[: len(before[0])] != before[0]:
        return 0, whole
    n_kept = len(before[0]) + (whole[len(before[0])] == before[1])
    return n_kept, whole[n_kept:]


@pytest.mark.full
def test_what_is_new_in_a_prompt_is_what_comparing_its_messages_finds(rows: Any, run: Any) -> None:
    chance = random.Random(7)
    expected = dict(_play(rows, chance) for _ in range(40))
    _, episodes = run()
    n_continued = 0
    for episode_id, steps in expected.items():
        found = [
            None
            if step.messages is None
            else (
                step.n_prompt_kept,
                [message.model_dump(mode="json", exclude_none=True) for message in step.messages],
            )
            for step in episodes[episode_id].steps
        ]
        assert found == steps, episode_id
        n_continued += sum(step is not None and step[0] > 0 for step in steps)
    assert n_continued > 40


def test_a_message_that_is_none_spoils_the_prompts_that_repeat_it_and_no_other(rows: Any, run: Any) -> None:
    """Also where the later prompts go on from it byte by byte."""
    episode_id = rows.id()
    prompt: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "start"}]}]
    for number in range(4):
        rows.chat_step(episode_id, output=[{"type": "text", "text": f"answer {number}"}], prompt=prompt)
        role = "nobody" if number == 1 else "user"
        prompt = [
            *prompt,
            {"role": "assistant", "content": [{"type": "text", "text": f"answer {number}"}]},
            {"role": role, "content": [{"type": "text", "text": f"question {number}"}]},
        ]
    _, episodes = run(max_bad=2)
    steps = episodes[episode_id].steps
    assert [step.n_prompt_kept for step in steps] == [0, 2, 0, 0]
    unreadable = "unreadable: prompt is not a list of messages"
    assert [step.mask_reason for step in steps] == [None, None, unreadable, unreadable]


def test_rows_of_many_buckets_are_compared_within_their_own(tmp_path: Any) -> None:
    text: pa.DataType = pa.string()
    schema = pa.schema([("bucket", pa.int64()), ("system", text), ("input_messages", text)])
    spool = Spool(tmp_path, "call", schema, 2)
    bodies = ['["a"]', '["a","b"]', '["a","b","c"]', "[]", '["x"]', '["x", "y"]']
    columns: list[list[Any]] = [[0, 0, 0, 1, 1, 1], [None, None, "s", "s", "s", "s"], bodies]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    spool.fill(iter([pa.RecordBatch.from_arrays(arrays, schema=schema)]))
    calls = Group(spool, [0, 1], "call_row")
    turns = pa.table(
        {
            "turn": pa.array(range(1, 7), pa.int64()),
            "bucket": pa.array([0, 0, 0, 1, 1, 1], pa.int64()),
            "call_row": pa.array(range(6), pa.int64()),
            "row_before": pa.array([None, 0, 1, None, 3, 4], pa.int64()),
        }
    )
    found = continuations(calls, turns)
    assert found.schema.equals(FOUND)
    assert found.to_pydict() == {
        "turn": [1, 2, 3, 4, 5, 6],
        # another system message, an empty list and a space begin anew
        "chain": [1, 1, 2, 3, 4, 4],
        "text": ['["a"]', '["b"]', None, None, '["x"]', '[ "y"]'],
        "has_system": [False, False, True, True, True, True],
        "is_apart": [False, False, True, False, True, False],
    }
