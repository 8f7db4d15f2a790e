"""Make sessions from Langfuse's rows: traces, observations and scores, from any of its interfaces.

Rows have the names of the blob storage export, which are those of the tables. Langfuse stores the input and
output of a model as text: JSON if the client logged an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from trajkit.formats.chat.conversation import tools_of
from trajkit.formats.reading.atif_parts import compact
from trajkit.formats.reading.document import BadDocument, text_at, time_at
from trajkit.schema import Role
from trajkit.schema.content import message
from trajkit.sources.calls import CUT_TEXT, EARLIEST, Call, Score, Session
from trajkit.sources.exchange import exchange_of
from trajkit.sources.files.exported import nested, nested_object
from trajkit.sources.spans.session import Targets, session_of
from trajkit.sources.spans.span import Span, listed, number_of, text_of

TRACE, OBSERVATION, SCORE = "trace", "observation", "score"
"""The kinds of rows."""
_KINDS = {"GENERATION": "LLM", "AGENT": "AGENT", "TOOL": "TOOL"}
_OF_SESSION = ("user_id", "release", "version")
_CUT = "<truncated due to size exceeding limit>"
"""The text with which Langfuse's client replaces the rest of a long text."""
_COUNTED = {"input", "output", "total"}


def session_of_rows(name: str, parts: Mapping[str, Sequence[dict[str, Any]]], *, is_named: bool) -> Session:
    """Make a session from its rows, each in one or more versions. It has no calls without a model.

    Args:
        name: Becomes the id of the episode.
        parts: Its rows by kind.
        is_named: Whether Langfuse has the session id; else it is the id of the only trace.

    Raises:
        BadDocument: A row or a message is not valid.
    """
    observations = _latest(parts.get(OBSERVATION, ()))
    traces = _latest(parts.get(TRACE, ()))
    spans = [_span(row) for row in observations.values()]
    session = session_of(name, spans, "langfuse", is_named=is_named)
    calls = [_filled(call, observations[call.call_id]) for call in session.calls]
    targets = Targets(calls, spans)
    scores = [score for row in _latest(parts.get(SCORE, ())).values() for score in _scores(row, targets)]
    said = [*traces.values(), *observations.values()]
    texts = (row.get(name) for row in observations.values() for name in ("input", "output"))
    is_cut = any(isinstance(text, str) and _CUT in text[-len(_CUT) - 2 :] for text in texts)
    return replace(
        session,
        missing=(*session.missing, *((CUT_TEXT,) if is_cut else ())),
        calls=calls,
        scores=scores,
        tags=_tags(said),
        origin={**session.origin, **_origin(traces.values(), said)},
    )


def _latest(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the last version of each row, by id; deleted rows are left out."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        before = found.get(row["id"])
        if before is None or _version(row) >= _version(before):
            found[row["id"]] = row
    kept = [row for row in found.values() if not number_of(row.get("is_deleted"))]
    return {row["id"]: row for row in sorted(kept, key=_place)}


def _place(row: dict[str, Any]) -> tuple[datetime, datetime, str]:
    """Return a key that orders rows the same in every interface: many start in one millisecond."""
    start = time_at(row.get("start_time") or row.get("timestamp"), "start_time") or EARLIEST
    return start, time_at(row.get("end_time"), "end_time") or start, row["id"]


def _version(row: dict[str, Any]) -> datetime:
    return time_at(row.get("event_ts") or row.get("updated_at"), "updated_at") or EARLIEST


def _span(row: dict[str, Any]) -> Span:
    kind = str(row.get("type"))
    name = text_of(row.get("name")) or ""
    attributes = {"openinference.span.kind": _KINDS.get(kind, "CHAIN")}
    if kind == "AGENT":
        attributes["agent.name"] = name
    return Span(
        trace_id=text_at(row.get("trace_id"), f"{row['id']}.trace_id"),
        span_id=row["id"],
        parent_id=text_of(row.get("parent_observation_id")),
        name=name,
        started_at=time_at(row.get("start_time"), f"{row['id']}.start_time"),
        ended_at=time_at(row.get("end_time"), f"{row['id']}.end_time"),
        attributes=attributes,
        is_error=row.get("level") == "ERROR",
        status=text_of(row.get("status_message")) or "",
    )


def _filled(call: Call, row: dict[str, Any]) -> Call:
    """Return a call from its observation."""
    request, response = nested(row.get("input")), nested(row.get("output"))
    if (
        isinstance(response, dict)
        and "role" in response
        and not isinstance(response.get("content"), str | list)
    ):
        response = {"message": response}
    told = exchange_of(request, response)
    answer = told.answer
    extra: dict[str, Any] = {**(call.extra or {}), **told.extra}
    if answer is None and isinstance(extra.get("response"), dict | list):
        # a JSON text, which a model writes in JSON mode, looks like an object
        answer = message(Role.ASSISTANT, compact(extra.pop("response")))
    tools = told.tools
    if tools is None and (defined := nested_object(row.get("tool_definitions"), "tool_definitions")):
        tools = tools_of([_tool(name, value) for name, value in defined.items()], "tool_definitions")
    usage = _numbers(row, "usage_details")
    n_input, n_output = _sum(usage, "input"), _sum(usage, "output")
    if usage.keys() - _COUNTED:
        extra["usage"] = usage
    if metadata := nested_object(row.get("metadata"), "metadata"):
        extra["metadata"] = metadata
    if (version := number_of(row.get("prompt_version"))) is not None:
        extra["prompt_version"] = int(version)
    for name in ("completion_start_time", "version", "environment"):
        if row.get(name) not in (None, "", "default"):
            extra[name] = row[name]
    if call.error is None and text_of(row.get("status_message")):
        extra |= {"level": row.get("level"), "status_message": row["status_message"]}
    return replace(
        call,
        prompt=told.prompt,
        answer=answer,
        tools=tools,
        model_name=text_of(row.get("provided_model_name")) or told.model_name,
        function_name=text_of(row.get("prompt_name")),
        n_input_tokens=told.n_input_tokens if n_input is None else n_input,
        n_output_tokens=told.n_output_tokens if n_output is None else n_output,
        cost_usd=_cost(row),
        finish_reason=told.finish_reason,
        settings={**told.settings, **nested_object(row.get("model_parameters"), "model_parameters")} or None,
        extra=extra,
    )


def _tool(name: str, value: Any) -> dict[str, Any]:
    found = nested_object(value, f"tool_definitions.{name}")
    parts = {key: nested(part) for key, part in found.items()}
    return {"name": name, **{key: part for key, part in parts.items() if part is not None}}


def _sum(usage: Mapping[str, float], side: str) -> int | None:
    """Return the tokens of one side: Langfuse counts cached tokens and thoughts separately."""
    counts = [int(count) for name, count in usage.items() if side in name]
    return sum(counts) if counts else None


def _cost(row: dict[str, Any]) -> float | None:
    """Return the cost; the tables have 0 for an unknown one."""
    costs = _numbers(row, "cost_details")
    if "total" in costs:
        return costs["total"]
    return sum(costs.values()) if costs else number_of(row.get("total_cost")) or None


def _scores(row: dict[str, Any], targets: Targets) -> Iterator[Score]:
    """Yield the scores of a row: its value, and its comment."""
    name, score_id = text_at(row.get("name"), f"{row['id']}.name"), str(row["id"])
    given = ("source", "trace_id", "observation_id", "author_user_id", "dataset_run_id", "config_id")
    tags = {key: str(row[key]) for key in given if text_of(row.get(key)) is not None}
    value, kind = row.get("value"), str(row.get("data_type"))
    text = text_of(row.get("long_string_value")) or text_of(row.get("string_value"))
    if text is None and isinstance(value, str) and kind not in ("NUMERIC", "BOOLEAN"):
        text = text_of(value)
    found: float | bool | str | None = text
    if kind == "BOOLEAN":
        number = number_of(value)
        found = value if isinstance(value, bool) else None if number is None else number != 0
    elif kind == "NUMERIC" or (kind == "None" and text is None):
        found = number_of(value)
    elif kind == "CORRECTION":
        tags["type"] = "correction"
    at = time_at(row.get("timestamp") or row.get("created_at"), f"{row['id']}.timestamp")
    if at is None:
        raise BadDocument("a score without its time", f"{row['id']}.timestamp")
    call_id = targets.call_of(text_of(row.get("observation_id")), text_of(row.get("trace_id")))
    score_of = partial(Score, name=name, call_id=call_id, created_at=at)
    if found is not None:
        yield score_of(value=found, score_id=score_id, tags=tags)
    if comment := text_of(row.get("comment")):
        yield score_of(value=comment, score_id=f"{score_id}-comment", tags={**tags, "of": "comment"})


def _tags(said: Sequence[dict[str, Any]]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for row in said:
        for name in _OF_SESSION:
            if (value := text_of(row.get(name))) is not None:
                tags.setdefault(name, value)
        environment = text_of(row.get("environment"))
        if environment not in (None, "default"):
            tags.setdefault("environment", str(environment))
        for tag in listed(row.get("tags")):
            tags.setdefault(str(tag), "true")
    return tags


def _origin(traces: Iterable[dict[str, Any]], said: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for row in traces:
        metadata = {**nested_object(row.get("metadata"), "metadata"), **metadata}
    names = [text_of(row.get("name")) for row in traces]
    names += [text_of(row.get("trace_name")) for row in said]
    for name, value in (
        ("project_id", next((row["project_id"] for row in said if row.get("project_id")), None)),
        ("trace_name", next((name for name in names if name), None)),
        ("metadata", metadata),
    ):
        if value:
            found[name] = value
    return found


def _numbers(row: dict[str, Any], name: str) -> dict[str, float]:
    values = {key: number_of(value) for key, value in nested_object(row.get(name), name).items()}
    return {key: value for key, value in values.items() if value is not None}
