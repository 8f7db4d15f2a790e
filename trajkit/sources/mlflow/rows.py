"""Make sessions of MLflow's traces.

A trace has spans and assessments. MLflow logs what a model was asked and answered as the inputs and outputs
of a span, in the form of the API that was called.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.reading.document import (
    BadDocument,
    known_time_at,
    object_at,
    objects_at,
    part_of,
    shown,
    text_at,
)
from trajkit.schema import Message, Role
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call, Score, Session
from trajkit.sources.exchange import Exchange, exchange_of
from trajkit.sources.spans.session import session_of
from trajkit.sources.spans.span import Span, SpanEvent, number_of, text_of

SPANS_ELSEWHERE = "a trace whose spans are in files, and not in the tracking store"
"""Sessions with such a trace: older versions of MLflow, and archived traces."""

SESSION, USER = "mlflow.trace.session", "mlflow.trace.user"
SCORER = "mlflow.trace.sourceScorer"
"""Tag of a trace that a judge made, and not the agent."""
_KINDS = {"LLM": "LLM", "CHAT_MODEL": "LLM", "AGENT": "AGENT", "TOOL": "TOOL"}
_INPUTS, _OUTPUTS = "mlflow.spanInputs", "mlflow.spanOutputs"
_USAGE, _MESSAGES, _TOOLS = "mlflow.chat.tokenUsage", "mlflow.chat.messages", "mlflow.chat.tools"
_READ = frozenset(
    {
        *(_INPUTS, _OUTPUTS, _USAGE, _MESSAGES, _TOOLS, "mlflow.llm.cost", "mlflow.llm.model"),
        *("mlflow.spanType", "mlflow.spanLogLevel", "mlflow.traceRequestId", "mlflow.message.format"),
        *("mlflow.experimentId", "mlflow.spanStartTimeNs"),
    }
)
_DERIVED = frozenset(
    {
        *(SESSION, USER, "mlflow.traceInputs", "mlflow.traceOutputs", "mlflow.trace.sizeStats"),
        *("mlflow.trace.sizeBytes", "mlflow.trace.tokenUsage", "mlflow.trace.cost"),
        *("mlflow.trace.infoFinalized", "mlflow.trace_schema.version"),
    }
)
"""Metadata of a trace that says nothing that its spans do not say."""


class Trace(NamedTuple):
    """A trace, as the tables and the API both give it."""

    trace_id: str
    metadata: Mapping[str, str]
    tags: Mapping[str, str]
    spans: Sequence[Mapping[str, Any]]
    assessments: Sequence[Mapping[str, Any]]
    """Each with the names of the table's columns; `value` is JSON and `created_at` a time."""


def trace_of_api(document: Mapping[str, Any]) -> Trace:
    """Return a trace as the API gives it.

    Raises:
        BadDocument: It has another form.
    """
    info = object_at(document.get("trace_info"), "trace_info")
    return Trace(
        text_at(info.get("trace_id"), "trace_info.trace_id"),
        part_of(info, "trace_metadata"),
        part_of(info, "tags"),
        objects_at(document.get("spans"), "spans"),
        [_assessment(one) for one in objects_at(info.get("assessments"), "assessments")],
    )


def session_of_traces(name: str, traces: Sequence[Trace], *, experiment: str, is_named: bool) -> Session:
    """Return the session of its traces; those that a judge made are left out.

    Args:
        name: Becomes the id of the episode.
        traces: All traces of the session.
        experiment: Name of the experiment that they are in.
        is_named: Whether MLflow gave the session id.

    Raises:
        BadDocument: A span or a message is not valid.
    """
    own = [trace for trace in traces if SCORER not in trace.tags]
    spans: list[Span] = []
    logged: dict[str, Mapping[str, Any]] = {}
    for trace in own:
        for raw in trace.spans:
            span = _span(raw, trace.trace_id)
            logged[span.span_id] = span.attributes
            spans.append(
                replace(span, attributes={k: v for k, v in span.attributes.items() if k not in _READ})
            )
    session = session_of(name, spans, "mlflow", is_named=is_named)
    calls = [_filled(call, logged[call.call_id]) for call in session.calls]
    ids = {call.call_id for call in calls}
    metadata: dict[str, str] = {}
    tags = dict(session.tags)
    for trace in own:
        if user := trace.metadata.get(USER):
            tags.setdefault("user_id", user)
        for key, value in {**trace.metadata, **trace.tags}.items():
            if not key.startswith("mlflow."):
                tags.setdefault(key, str(value))
            elif key not in _DERIVED and key in trace.metadata:
                metadata.setdefault(key, value)
    assessments = [one for trace in own for one in trace.assessments]
    unused = [_plain(one) for one in assessments if not list(_scores(one, ids))]
    is_elsewhere = any(not trace.spans for trace in own)
    origin: JsonObject = {
        **session.origin,
        "trace_ids": [trace.trace_id for trace in own],
        "experiment": experiment,
        **({"metadata": {**metadata}} if metadata else {}),
        **({"unused_assessments": [*unused]} if unused else {}),
    }
    return replace(
        session,
        calls=calls,
        scores=[*session.scores, *(score for one in assessments for score in _scores(one, ids))],
        tags=tags,
        origin=origin,
        missing=(*session.missing, *((SPANS_ELSEWHERE,) if is_elsewhere else ())),
    )


def _filled(call: Call, logged: Mapping[str, Any]) -> Call:
    """Return a call with what MLflow's own attributes say and no other attribute says."""
    request, response = logged.get(_INPUTS), logged.get(_OUTPUTS)
    told = exchange_of(request, response) if call.prompt is None or call.answer is None else Exchange()
    if call.prompt is None and told.prompt is None and isinstance(logged.get(_MESSAGES), list):
        told = _of_chat_messages(told, logged[_MESSAGES])
    usage, cost = logged.get(_USAGE), logged.get("mlflow.llm.cost")
    usage = usage if isinstance(usage, dict) else {}
    tools = told.tools if call.tools is None else call.tools
    if tools is None and logged.get(_TOOLS):
        tools = tools_of(logged[_TOOLS], _TOOLS)
    asked = request if isinstance(request, dict) else {}
    extra = {
        name: value for name, value in (call.extra or {}).items() if name not in asked or asked[name] != value
    }
    rest = {name: value for name, value in usage.items() if name.startswith("cache_") and value}
    n_in, n_out = number_of(usage.get("input_tokens")), number_of(usage.get("output_tokens"))
    return replace(
        call,
        prompt=told.prompt if call.prompt is None else call.prompt,
        answer=told.answer if call.answer is None else call.answer,
        tools=tools,
        model_name=told.model_name or call.model_name or text_of(logged.get("mlflow.llm.model")),
        n_input_tokens=_first(call.n_input_tokens, None if n_in is None else int(n_in), told.n_input_tokens),
        n_output_tokens=_first(
            call.n_output_tokens, None if n_out is None else int(n_out), told.n_output_tokens
        ),
        cost_usd=_first(call.cost_usd, number_of(cost.get("total_cost")) if isinstance(cost, dict) else None),
        finish_reason=call.finish_reason or told.finish_reason,
        settings={**told.settings, **(call.settings or {})} or None,
        extra={**extra, **told.extra, **({"usage": rest} if rest else {})} or None,
    )


def _of_chat_messages(told: Exchange, sent: list[Any]) -> Exchange:
    """What `mlflow.chat.messages` says: before 3.2 it had the prompt, and the answer as its last message."""
    messages: tuple[Message, ...] = tuple(conversation_of(sent, _MESSAGES))
    if messages and messages[-1].role == Role.ASSISTANT:
        return replace(told, prompt=messages[:-1], answer=told.answer or messages[-1], extra={})
    return replace(told, prompt=messages, extra={})


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _span(raw: Mapping[str, Any], trace_id: str) -> Span:
    attributes = _attributes(raw.get("attributes"))
    kind = attributes.get("mlflow.spanType")
    if isinstance(kind, str) and kind != "UNKNOWN":
        attributes.setdefault("openinference.span.kind", _KINDS.get(kind, kind))
    status = part_of(raw, "status")
    return Span(
        trace_id=trace_id,
        span_id=_hex(raw.get("span_id"), "span_id"),
        parent_id=_hex(raw["parent_span_id"], "parent_span_id") if raw.get("parent_span_id") else None,
        name=text_of(raw.get("name")) or "",
        started_at=_time(raw.get("start_time_unix_nano")),
        ended_at=_time(raw.get("end_time_unix_nano")),
        attributes=attributes,
        events=[
            SpanEvent(
                str(one.get("name")), _time(one.get("time_unix_nano")), _attributes(one.get("attributes"))
            )
            for one in objects_at(raw.get("events"), "events")
            if not str(one.get("name")).startswith("mlflow.chunk.")  # the answer, piece by piece
        ],
        is_error=status.get("code") == "STATUS_CODE_ERROR",
        status=str(status.get("message") or ""),
    )


def _attributes(sent: Any) -> dict[str, Any]:
    """Return attributes: an object of JSON texts in the database, the list of OTLP from the API."""
    if isinstance(sent, list):
        return {str(one.get("key")): _value(one.get("value")) for one in objects_at(sent, "attributes")}
    return {name: _parsed(value) for name, value in object_at(sent or {}, "attributes").items()}


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _value(sent: Any) -> Any:
    """Return a value of OTLP: an object whose only name is its type."""
    for kind, value in sent.items() if isinstance(sent, dict) else ():
        match kind:
            case "array_value":
                values = object_at(value, "attributes").get("values")
                return [_value(one) for one in values] if isinstance(values, list) else []
            case "kvlist_value":
                return _attributes(object_at(value, "attributes").get("values") or [])
            case "int_value" if isinstance(number := number_of(value), float):
                return int(value) if isinstance(value, int) else int(number)
            case _:
                return value
    return None


def _hex(value: Any, where: str) -> str:
    """Return an id of OTLP's JSON, which is in base64."""
    try:
        return base64.b64decode(text_at(value, where), validate=True).hex()
    except (binascii.Error, ValueError) as error:
        raise BadDocument("not an id in base64", where, shown(value)) from error


def _time(nanoseconds: Any) -> datetime | None:
    number = number_of(nanoseconds)
    if not number:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(nanoseconds) // 1000)
    except OverflowError as error:
        raise BadDocument("not a time", "start_time_unix_nano", shown(nanoseconds)) from error


def _assessment(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assessment of the API with the names of the table's columns."""
    kind = next(
        (one for one in ("feedback", "expectation", "issue") if isinstance(sent.get(one), dict)), None
    )
    inner = sent.get(kind or "") or {}
    value: Any = inner.get("value")
    if isinstance(serialized := inner.get("serialized_value"), dict):
        value = _parsed(serialized.get("value"))
    source = part_of(sent, "source")
    return {
        "assessment_id": sent.get("assessment_id"),
        "trace_id": sent.get("trace_id"),
        "span_id": sent.get("span_id"),
        "name": sent.get("assessment_name"),
        "assessment_type": kind,
        "value": value,
        "error": inner.get("error"),
        "created_at": known_time_at(sent.get("create_time"), "create_time"),
        "source_type": source.get("source_type"),
        "source_id": source.get("source_id"),
        "run_id": sent.get("run_id"),
        "rationale": sent.get("rationale"),
        "overrides": sent.get("overrides"),
        "valid": sent.get("valid", True),
        "assessment_metadata": sent.get("metadata"),
    }


def _scores(one: Mapping[str, Any], call_ids: set[str]) -> Iterator[Score]:
    """Yield the scores of an assessment: none where it was overridden, or its judge failed."""
    if not one["valid"]:
        return
    name, score_id = str(one["name"]), str(one["assessment_id"])
    given = {
        key: one[key] for key in ("source_type", "source_id", "run_id", "trace_id", "span_id", "overrides")
    }
    given |= one["assessment_metadata"] if isinstance(one["assessment_metadata"], dict) else {}
    tags = {str(key): str(value) for key, value in given.items() if value is not None}
    is_expected = one["assessment_type"] != "feedback"
    if is_expected:
        tags["type"] = str(one["assessment_type"])
    call_id = one["span_id"] if one["span_id"] in call_ids else None
    values: dict[str, float | bool | str] = {}
    match one["value"]:
        case None:
            pass
        case bool() | int() | float() | str() as value if not is_expected or isinstance(value, str):
            values[name] = value
        case {**parts} if not is_expected and all(
            isinstance(part, bool | int | float) for part in parts.values()
        ):
            values = {f"{name}.{part}": each for part, each in parts.items() if isinstance(each, int | float)}
        case value:  # what is expected is no measurement
            values[name] = json.dumps(value, ensure_ascii=False)
    if one["rationale"]:
        values[""] = str(one["rationale"])
    for number, (label, value) in enumerate(values.items()):
        yield Score(
            name=label or name,
            value=value,
            score_id=score_id if number == 0 else f"{score_id}-{number}",
            call_id=call_id,
            created_at=one["created_at"],
            tags={**tags, **({} if label else {"of": "rationale"})},
        )


def _plain(one: Mapping[str, Any]) -> JsonObject:
    plain = {name: value for name, value in one.items() if value is not None}
    return {**plain, "created_at": one["created_at"].isoformat()}
