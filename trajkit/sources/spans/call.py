"""Read a call of a model from its span, in the spellings of OpenTelemetry, OpenLLMetry and OpenInference.

What no spelling takes stays in `Call.extra` under its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call
from trajkit.sources.spans.span import Span, listed, number_of, text_of
from trajkit.sources.spans.spellings import SPELLINGS, Cut, loose

_SETTINGS = "gen_ai.request."
_NOT_SETTINGS = ("model", "messages", "tools", "functions", "input", "prompt", "instructions", "system")
_FINISH = ("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.finish_reason")
_MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "embedding.model_name")
_INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
)
_COST = ("llm.cost.total", "gen_ai.usage.cost", "gen_ai.usage.total_cost")
_TAKEN = {*_FINISH, *_MODEL, *_INPUT_TOKENS, *_OUTPUT_TOKENS, *_COST, "openinference.span.kind"}


def call_of(span: Span) -> tuple[Call, bool]:
    """Return the call of a span, and whether a text in it was cut.

    Raises:
        BadDocument: A message or tool is not valid.
    """
    prompt: Any = None
    answers: Any = None
    tools: Any = None
    finish: Any = None
    is_cut = False
    taken: list[str] = []
    for read in SPELLINGS:
        try:
            said = read(span)
        except Cut:
            is_cut = True
            continue
        prompt = said.prompt if prompt is None else prompt
        answers = answers or said.answers
        tools = said.tools if tools is None else tools
        finish = said.finish if finish is None else finish
        taken += said.names if said.prompt or said.answers or said.tools else ()
    whole = bool(prompt) and bool(answers)
    rest = {
        name: value
        for name, value in span.attributes.items()
        if name not in _TAKEN and not _is_setting(name) and not _begins(name, taken)
        and not (whole and name.startswith(("input.", "output.")))
    }  # fmt: skip
    answer = None
    if answers:
        answer = {**answers[0], "role": "assistant"}
        if len(answers) > 1:
            rest["other_answers"] = answers[1:]
    finish = next(iter(listed(span.first(*_FINISH))), None) or finish
    latency = None
    if span.started_at is not None and span.ended_at is not None:
        latency = (span.ended_at - span.started_at).total_seconds()
    call = Call(
        call_id=span.span_id,
        prompt=conversation_of(prompt, f"{span.span_id}.prompt") if prompt else None,
        answer=conversation_of([answer], f"{span.span_id}.answer")[-1] if answer else None,
        tools=tools_of(tools, f"{span.span_id}.tools") if tools else None,
        model_name=text_of(span.first(*_MODEL)),
        started_at=span.started_at,
        latency_s=latency,
        n_input_tokens=_count(span.first(*_INPUT_TOKENS)),
        n_output_tokens=_count(span.first(*_OUTPUT_TOKENS)),
        cost_usd=number_of(span.first(*_COST)),
        finish_reason=text_of(finish),
        settings=_settings(span) or None,
        error=_error(span),
        extra={"span_name": span.name, "trace_id": span.trace_id, **rest},
    )
    return call, is_cut


def _is_setting(name: str) -> bool:
    return name.startswith(_SETTINGS) and name != "gen_ai.request.model"


def _settings(span: Span) -> JsonObject:
    found: JsonObject = {
        name.removeprefix(_SETTINGS): value for name, value in span.attributes.items() if _is_setting(name)
    }
    given = loose(span.first("llm.invocation_parameters"))
    for name, value in given.items() if isinstance(given, dict) else ():
        if name not in _NOT_SETTINGS:
            found.setdefault(name, value)
    return found


def _error(span: Span) -> str | None:
    thrown = next((one for one in span.events if one.name == "exception"), None)
    if not span.is_error and span.first("error.type") is None:
        return None
    said = thrown.attributes.get("exception.message") if thrown is not None else None
    return str(span.status or said or span.first("error.message", "error.type") or "error")


def _count(value: Any) -> int | None:
    number = number_of(value)
    return None if number is None else int(number)


def _begins(name: str, beginnings: Sequence[str]) -> bool:
    return any(name.startswith(one) for one in beginnings)
