"""Which of several model calls gave an inference's answer, and what the store has as its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.sources.row_database import RowDatabase, spelled
from tests.sources.shapes import Steps
from trajkit.schema import TextBlock
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export.export import export
from trajkit.store.dataset import open_dataset


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said}]


def asked(said: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text(said)}]


def prompt_of(step: Any) -> list[str] | None:
    return None if step.messages is None else [message.text for message in step.messages]


def test_best_of_n_takes_the_candidate_that_was_chosen() -> None:
    steps = Steps()
    inference = steps.chat(text("north"), calls=0)
    steps.call(inference, messages=asked("a"), said=text("south"), input_tokens=1)
    steps.call(inference, messages=asked("b"), said=text("north"), input_tokens=2, finish_reason="stop")
    steps.call(inference, messages=asked("judge"), said=text('{"answer_choice": 1}'), input_tokens=3)
    _, (step,) = steps.export()
    assert (prompt_of(step), step.n_input_tokens, step.finish_reason) == (["b"], 2, "stop")
    assert step.mask_reason is None


@pytest.mark.full
def test_candidates_that_agree_on_one_prompt_stand_for_each_other() -> None:
    steps = Steps()
    inference = steps.chat(text("north"), calls=0)
    for _ in range(2):
        steps.call(inference, messages=asked("the same"), said=text("north"), input_tokens=5)
    steps.call(inference, messages=asked("judge"), said=text("1"))
    _, (step,) = steps.export()
    assert (prompt_of(step), step.n_input_tokens, step.mask_reason) == (["the same"], 5, None)


@pytest.mark.full
def test_candidates_that_agree_on_different_prompts_or_models_are_ambiguous() -> None:
    steps = Steps()
    changes: list[dict[str, Any]] = [
        {"messages": asked("another")},
        {"model_name": "another"},
        {"system": "s"},
    ]
    for change in changes:
        inference = steps.chat(text("north"), calls=0)
        steps.call(inference, messages=asked("one"), said=text("north"))
        steps.call(inference, **{"messages": asked("one"), "said": text("north")} | change)
    tally, made = steps.export()
    assert [(step.messages, step.mask_reason) for step in made] == [(None, "prompt ambiguous")] * 3
    assert [(entry.reason, entry.n_steps) for entry in tally.masked] == [("prompt ambiguous", 3)]


def test_a_mixture_takes_the_call_that_fused() -> None:
    steps = Steps()
    inference = steps.chat(text("together"), calls=0)
    for said in ("one", "two"):
        steps.call(inference, messages=asked("q"), said=text(said))
    steps.call(inference, messages=asked("fuse"), said=text("together"))
    _, (step,) = steps.export()
    assert prompt_of(step) == ["fuse"]


@pytest.mark.full
def test_tool_calls_are_matched_by_what_the_model_wrote() -> None:
    called = {"type": "tool_call", "id": "c", "raw_name": "move", "raw_arguments": '{"to":"n"}'}
    steps = Steps()
    inference = steps.chat([{**called, "name": None, "arguments": None}], calls=0)
    steps.call(
        inference,
        messages=asked("a"),
        said=[{"type": "tool_call", "id": "c", "name": "move", "arguments": '{"to":"s"}'}],
    )
    steps.call(
        inference,
        messages=asked("b"),
        said=[{"type": "tool_call", "id": "c", "name": "move", "arguments": '{"to":"n"}'}],
    )
    _, (step,) = steps.export(include_invalid=True)
    assert (prompt_of(step), step.mask_reason) == (["b"], None)


@pytest.mark.full
def test_the_answer_of_a_json_function_is_matched_wherever_the_model_put_it() -> None:
    steps = Steps()
    for said in (
        text('{"action":"go"}'),
        [{"type": "thought", "text": "hm"}, *text('{"action":"go"}')],
        [{"type": "tool_call", "id": "c", "name": "respond", "arguments": '{"action":"go"}'}],
    ):
        inference = steps.json(raw='{"action":"go"}', calls=0)
        steps.call(inference, messages=asked("a"), said=text('{"action":"stay"}'))
        steps.call(inference, messages=asked("b"), said=said)
    _, made = steps.export()
    assert [prompt_of(step) for step in made] == [["b"]] * 3


@pytest.mark.full
def test_calls_whose_output_is_gone_match_nothing() -> None:
    steps = Steps()
    inference = steps.chat(text("north"), calls=0)
    for said in ("", None):
        steps.call(inference, messages=asked("a"), said=said)
    _, (step,) = steps.export()
    assert (step.messages, step.mask_reason) == (None, "prompt ambiguous")


def test_what_is_known_of_a_call_travels_with_its_step() -> None:
    steps = Steps()
    first = steps.json(calls=0, processing_time_ms=120)
    steps.call(
        first,
        model_name="agent",
        model_provider_name="openai",
        input_tokens=11,
        output_tokens=7,
        cost_usd=0.25,
        finish_reason="length",
        cached=True,
        response_time_ms=100,
        ttft_ms=30,
    )
    second = steps.json(calls=0)
    steps.call(second, response_time_ms=80)
    steps.json(calls=0)
    _, (one, two, three) = steps.export()
    assert (one.model_name, one.n_input_tokens, one.n_output_tokens, one.cost_usd) == ("agent", 11, 7, 0.25)
    assert (one.finish_reason, one.cached, one.latency_s) == ("length", True, 0.12)
    assert one.extra == {"model_provider_name": "openai", "ttft_s": 0.03}
    # a batch inference has no time of its own
    assert (two.latency_s, two.cached, two.finish_reason) == (0.08, None, None)
    assert (three.latency_s, three.model_name, three.mask_reason) == (None, None, "prompt unknown")


def test_an_answer_that_stopped_early_keeps_the_reason_and_an_empty_one_is_no_target() -> None:
    steps = Steps()
    for reason in ("length", "content_filter", "stop_sequence"):
        steps.call(steps.chat(text("x"), calls=0), finish_reason=reason, said=spelled(text("x")))
    steps.chat([])
    _, made = steps.export()
    assert [step.finish_reason for step in made] == ["length", "content_filter", "stop_sequence", None]
    assert [step.mask_reason for step in made] == [None, None, None, "invalid output"]


def test_a_conversation_goes_on_after_a_step_whose_prompt_is_unknown() -> None:
    one, two = asked("one"), [*asked("one"), {"role": "assistant", "content": text("a")}, *asked("two")]
    three = [*two, {"role": "assistant", "content": text("b")}, *asked("three")]
    steps = Steps()
    steps.chat(text("a"), messages=one)
    steps.chat(text("b"), calls=0)
    steps.chat(text("c"), messages=three)
    _, made = steps.export()
    assert [prompt_of(step) for step in made] == [["one"], None, ["one", "a", "two", "b", "three"]]


# -- the text of an answer, which the store spells in one way ------------------------------------------------

# the member `raw` of an output as it is stored, and the text of the answer (None: there is none)
RAW = {
    "plain": ('"go \\"there\\""', 'go "there"'),
    "escapes that the store spells otherwise": ('"a\\/b \\u00e9 \\u0001 \\u2028"', "a/b é \x01 \u2028"),
    "JSON in a text": ('"{\\"action\\":\\"go\\\\n\\"}"', '{"action":"go\\n"}'),
    "empty": ('""', ""),
    "the word null": ('"null"', "null"),
    "null": ("null", None),
    "a number": ("12", "12"),
    "an object": ('{"b": 1, "a": [true]}', '{"b":1,"a":[true]}'),
}
# the member `parsed`, the action, and whether the output is invalid
PARSED = [
    ('{"action":"go"}', "go", False),
    ('{"action":null}', None, False),
    ('{"action":["go",1]}', ["go", 1], False),
    ('"go"', None, False),
    ("null", None, True),
]


def test_an_answer_is_the_text_of_its_output_in_the_stores_spelling(tmp_path: Path) -> None:
    steps = Steps()
    for stored, _ in RAW.values():
        steps.json(output=f'{{ "raw": {stored}, "parsed": {{"action": "go"}} }}')
    export(RowDatabase(steps.inferences, steps.calls), ExportRequest(), tmp_path / "store")
    (episode,) = open_dataset(tmp_path / "store")
    for (name, (_, text)), step in zip(RAW.items(), episode.steps, strict=True):
        assert step.completion is not None
        found = [block.text for block in step.completion.content if isinstance(block, TextBlock)]
        assert found == ([] if text is None else [text]), name
        assert step.action == "go"
    parts = str(tmp_path / "store" / "steps" / "*.parquet")
    rows = duckdb.execute(
        f"SELECT completion::VARCHAR, json(completion::VARCHAR)::VARCHAR FROM '{parts}'"
    ).fetchall()
    assert len(rows) == len(RAW)
    for written, normal in rows:
        assert written == normal
        assert json.loads(written)["role"] == "assistant"


def test_an_action_is_what_the_parsed_output_says() -> None:
    steps = Steps()
    for parsed, _, _ in PARSED:
        steps.json(output=f'{{"raw":"r","parsed":{parsed}}}')
    _, made = steps.export()
    assert [(step.action, step.mask_reason) for step in made] == [
        (action, "invalid output" if is_invalid else None) for _, action, is_invalid in PARSED
    ]
