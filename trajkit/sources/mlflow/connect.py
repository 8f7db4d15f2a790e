"""Read sessions from MLflow: from the SQLite file of a tracking store, or from the API of a running server.

`?experiment=NAME` after a URL reads one experiment; without it all are read.

A trace has spans and assessments. MLflow logs the request and the answer of a model as the inputs and
outputs of a span, in the form of the called API.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.reading.document import (
    BadDocument,
    object_at,
    objects_at,
    part_of,
    shown,
    text_at,
)
from trajkit.schema import Message, Role
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import NO_CALL, Call, Score, Session, found_by
from trajkit.sources.exchange import Exchange, exchange_of
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.mlflow import api, tables
from trajkit.sources.mlflow.tables import SESSION, Trace
from trajkit.sources.otel.otlp import attributes_of
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.spans.session import session_of
from trajkit.sources.spans.span import Span, SpanEvent, count_of, number_of, parsed, text_of
from trajkit.sources.sqlite_file import has_tables, options_of, path_of
from trajkit.sources.wish import Wish

SPANS_ELSEWHERE = "a trace whose spans are in files, not in the tracking store"
"""Sessions with such a trace: older versions of MLflow, and archived traces."""

USER = "mlflow.trace.user"
SCORER = "mlflow.trace.sourceScorer"
"""Tag of a trace of a judge, not of the agent."""
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
"""Metadata of a trace that repeats its spans."""
_OF_A_JUDGE = "traces of a judge, not of the agent"
_IN_FILES = "its spans are in files, not in the tracking store"


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of a tracking store or of a server."""
    options = options_of(place)
    experiment = options.pop("experiment", None)
    if options:
        raise RequestError(f"unknown option {', '.join(options)}", hint="known: experiment")
    if path_of(place) is not None:
        groups = tables.groups_of(place, experiment)
    else:
        groups = api.groups_of(place, experiment, wish.since)
    for group in groups:
        if wish.since is not None and group.ended_at is not None and group.ended_at < wish.since:
            yield Found(group.name, aside="before --since")
        else:
            yield _found(group)


def _found(group: tables.Group) -> Found:
    place = f"{group.experiment}/{group.name}"
    try:
        traces = list(group.traces)
    except BadDocument as error:
        return Found(place, problem=error.problem)
    if traces and all(SCORER in trace.tags for trace in traces):
        return Found(place, aside=_OF_A_JUDGE)
    name = place if group.is_in_others else group.name
    make = partial(_session, name, traces, experiment=group.experiment, is_named=group.is_named)
    return found_by(make, place, empty=NO_CALL if any(trace.spans for trace in traces) else _IN_FILES)


def _session(name: str, traces: Sequence[Trace], *, experiment: str, is_named: bool) -> Session:
    """Make a session from its traces; those of a judge are left out."""
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
    """Return a call with the facts that only MLflow's own attributes have."""
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
    return replace(
        call,
        prompt=told.prompt if call.prompt is None else call.prompt,
        answer=told.answer if call.answer is None else call.answer,
        tools=tools,
        model_name=told.model_name or call.model_name or text_of(logged.get("mlflow.llm.model")),
        n_input_tokens=_first(call.n_input_tokens, count_of(usage.get("input_tokens")), told.n_input_tokens),
        n_output_tokens=_first(
            call.n_output_tokens, count_of(usage.get("output_tokens")), told.n_output_tokens
        ),
        cost_usd=_first(call.cost_usd, number_of(cost.get("total_cost")) if isinstance(cost, dict) else None),
        finish_reason=call.finish_reason or told.finish_reason,
        settings={**told.settings, **(call.settings or {})} or None,
        extra={**extra, **told.extra, **({"usage": rest} if rest else {})} or None,
    )


def _of_chat_messages(told: Exchange, sent: list[Any]) -> Exchange:
    """Read `mlflow.chat.messages`: before 3.2 it had the prompt, and the answer as its last message."""
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
        return attributes_of(sent, "attributes")
    return {name: parsed(value) for name, value in object_at(sent or {}, "attributes").items()}


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
        case value:  # an expectation is not a measurement
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


SOURCE = Source(
    name="mlflow",
    about="sessions of MLflow's tracking store in SQLite, or of its server",
    read=read,
    recognises=lambda place: has_tables(place, *tables.TABLES),
    fidelity={
        "session": kept("`mlflow.trace.session`, else each trace is an episode"),
        "sub-agents": kept("an agent's span in that of another"),
        "tool results": kept("those that a later prompt has"),
        "thoughts": kept("where the model's API gives them"),
        "images and files": changed("references: MLflow keeps them as attachments"),
        "cost": kept("where MLflow knows the model's price"),
        "metrics": kept("feedback that is a number or a boolean"),
        "comments": kept("feedback that is a text, reasons and expectations"),
        **lost("task and seed", "token ids"),
    },
)
