"""Read traces of the OpenAI Agents SDK from JSON lines: model calls, and agents as runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.chat.response_items import conversation_of_items
from trajkit.formats.reading.atif_parts import compact
from trajkit.formats.reading.document import BadDocument, objects_at, part_of, shown, time_at
from trajkit.schema import Message
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import NO_SESSION, Call, Gathered, Session, found_by
from trajkit.sources.files.documents import LINES, without_nulls
from trajkit.sources.files.exported import first_rows, take_rows
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.wish import Wish

_OBJECTS = ("trace", "trace.span")
_MOST_LOOKED_AT = 20
_CALLS = ("generation", "response")
_SETTINGS = (
    *("temperature", "top_p", "max_tokens", "max_output_tokens", "presence_penalty", "frequency_penalty"),
    *("tool_choice", "parallel_tool_calls", "reasoning", "verbosity"),
)
_STEPS_OF_A_RUN = ("task", "turn")
"""Custom spans with which the SDK frames a run and its turns."""


def read(place: str, _wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions in the lines below a path: traces of one group, else each trace."""
    with Gathered() as gathered:
        yield from take_rows(Path(place), partial(_gather, gathered), LINES)
        for name, parts in gathered.groups():
            make = partial(_session, name, parts.get("trace", []), parts.get("trace.span", []))
            yield found_by(make, name, empty="a trace without a model call")


def _items(row: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the items of a line: one, or a batch as it is sent to OpenAI."""
    return objects_at(row["data"], "data") if "object" not in row and "data" in row else [row]


def _gather(gathered: Gathered, row: dict[str, Any]) -> None:
    for item in _items(row):
        kind = item.get("object")
        if kind not in _OBJECTS:
            raise BadDocument("neither a trace nor a span", "object", shown(kind))
        name = "id" if kind == "trace" else "trace_id"
        trace = item.get(name)
        if not isinstance(trace, str) or not trace:
            raise BadDocument("not the id of a trace", name, shown(trace))
        if kind == "trace" and isinstance(group := item.get("group_id"), str) and group:
            gathered.move(trace, group)
        gathered.add(trace, item, part=kind)


class _Run(NamedTuple):
    """A span of an agent."""

    name: str | None
    """Its id as a run; None for the session's own agent."""
    agent: str | None
    """Name of the agent."""


def _session(name: str, traces: Sequence[JsonObject], spans: Sequence[JsonObject]) -> Session:
    once = {str(span.get("id")): span for span in spans}
    ordered = sorted(once.values(), key=lambda span: str(span.get("started_at") or ""))
    parents: dict[str, str] = {}
    runs = _runs(ordered, once, parents)
    calls: list[Call] = []
    others: list[JsonObject] = []
    for span in ordered:
        data = part_of(span, "span_data", str(span.get("id")))
        if data.get("type") in _CALLS:
            run = runs.get(_agent_above(span, once) or "", _Run(None, None))
            calls.append(_call(span, data, run))
        elif _tells_more(span, data):
            others.append(span)
    tags: dict[str, str] = {}
    for trace in traces:
        metadata = trace.get("metadata")
        for key, value in metadata.items() if isinstance(metadata, dict) else ():
            tags[str(key)] = value if isinstance(value, str) else compact(value)
    is_grouped = any(trace.get("group_id") for trace in traces)
    origin: JsonObject = {"traces": list(traces)}
    if others:
        origin["spans"] = [*others]
    return Session(
        session_id=name,
        source="openai-agents",
        calls=calls,
        agent_parents=parents,
        tags=tags,
        origin=origin,
        missing=() if is_grouped else (NO_SESSION,),
    )


def _runs(
    spans: Sequence[JsonObject], by_id: Mapping[str, JsonObject], parents: dict[str, str]
) -> dict[str, _Run]:
    """Return the run of each agent span, by its id; add to `parents` which run started which."""
    runs: dict[str, _Run] = {}
    latest: dict[str, _Run] = {}  # the agent that may hand over, by trace
    for span in spans:
        data = span.get("span_data")
        if not isinstance(data, dict) or data.get("type") != "agent":
            continue
        span_id, trace = str(span.get("id")), str(span.get("trace_id"))
        above = _agent_above(span, by_id)
        before = runs.get(above) if above is not None else latest.get(trace)
        is_own = above is None and before is None
        agent = data.get("name")
        run = _Run(None if is_own else span_id, agent if isinstance(agent, str) else None)
        runs[span_id] = run
        if not is_own and before is not None and before.name is not None:
            parents[span_id] = before.name
        if above is None:
            latest[trace] = run
    return runs


def _agent_above(span: JsonObject, by_id: Mapping[str, JsonObject]) -> str | None:
    """Return the id of the nearest agent span around a span."""
    seen: set[str] = set()
    above = span.get("parent_id")
    while isinstance(above, str) and above in by_id and above not in seen:
        seen.add(above)
        data = by_id[above].get("span_data")
        if isinstance(data, dict) and data.get("type") == "agent":
            return above
        above = by_id[above].get("parent_id")
    return None


def _tells_more(span: JsonObject, data: JsonObject) -> bool:
    """Whether a span has data that no call has."""
    match data.get("type"):
        case "function":
            return bool(span.get("error") or data.get("mcp_data"))
        case "custom":
            return data.get("name") not in _STEPS_OF_A_RUN or bool(span.get("error"))
        case "agent":
            return bool(span.get("error"))
        case "handoff":
            return bool(span.get("error"))
        case _:
            return True


def _call(span: JsonObject, data: JsonObject, run: _Run) -> Call:
    where = str(span.get("id"))
    start, end = (time_at(span.get(name), f"{where}.{name}") for name in ("started_at", "ended_at"))
    is_response = data["type"] == "response"
    response = part_of(data, "response", where)
    config = response if is_response else part_of(data, "model_config", where)
    usage = part_of(response or data, "usage", where) or part_of(data, "usage", where)
    error = span.get("error")
    prompt, answer = (_responded if is_response else _generated)(data, response, where)
    model = response.get("model") if is_response else data.get("model")
    known = {*_SETTINGS, "instructions", "tools", "output", "usage", "model", "object", "id", "created_at"}
    extra: JsonObject = {
        name: value for name, value in config.items() if name not in known and value not in (None, [], {}, "")
    }
    if isinstance(data.get("response_id"), str):
        extra["response_id"] = data["response_id"]
    return Call(
        call_id=where,
        prompt=prompt,
        answer=answer,
        tools=tools_of([_function(one) for one in response.get("tools") or ()]) if is_response else None,
        model_name=model if isinstance(model, str) else None,
        agent_name=run.agent,
        agent_run=run.name,
        started_at=start,
        latency_s=None if start is None or end is None else max(0.0, (end - start).total_seconds()),
        n_input_tokens=usage.get("input_tokens", usage.get("prompt_tokens")),
        n_output_tokens=usage.get("output_tokens", usage.get("completion_tokens")),
        settings={name: config[name] for name in _SETTINGS if config.get(name) is not None} or None,
        error=None if not error else _error_text(error),
        extra=extra or None,
    )


def _generated(data: JsonObject, _: JsonObject, where: str) -> tuple[list[Message] | None, Message | None]:
    sent, said = data.get("input"), data.get("output")
    prompt = None if sent is None else conversation_of(_bare(sent), f"{where}.input")
    if isinstance(said, str):
        said = [{"role": "assistant", "content": said}]
    answers = conversation_of(_bare(said), f"{where}.output") if said else []
    return prompt, answers[0] if answers else None


def _bare(messages: Any) -> Any:
    """Return messages without null fields; a text becomes a user message."""
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else without_nulls(messages)


def _responded(
    data: JsonObject, response: JsonObject, where: str
) -> tuple[list[Message] | None, Message | None]:
    prompt = None
    if data.get("input") is not None:
        prompt = conversation_of_items(data["input"], f"{where}.input")
        system = response.get("instructions")
        if isinstance(system, str) and system:
            prompt = [*conversation_of([{"role": "system", "content": system}]), *prompt]
    said = conversation_of_items(response.get("output") or [], f"{where}.output")
    return prompt, said[0] if said else None


def _function(tool: Any) -> Any:
    """Return a tool of the Responses API in the form of the chat API."""
    if not isinstance(tool, dict) or tool.get("type") != "function" or "function" in tool:
        return tool
    function = {name: item for name, item in tool.items() if name != "type" and item is not None}
    return {"type": "function", "function": function}


def _error_text(error: Any) -> str:
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        more = f" {compact(error['data'])}" if error.get("data") else ""
        return f"{error['message']}{more}"
    return compact(error)


def _recognises(place: str) -> bool:
    try:
        items = [_items(row)[0] for row in first_rows(place, LINES, most=_MOST_LOOKED_AT) if row]
    except (BadDocument, IndexError):
        return False
    return any(
        one.get("object") in _OBJECTS and ("workflow_name" in one or "span_data" in one) for one in items
    )


SOURCE = Source(
    name="openai-agents",
    about="traces of the OpenAI Agents SDK, as JSON lines of exported traces and spans",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("the group of the trace; without one each trace is a session"),
        "sub-agents": kept("agents as tools, and agents that a run is handed to"),
        "prompt": kept("response spans: where the processor writes `input` and `response`"),
        "answer": kept("response spans: where the processor writes `response`"),
        "tools offered": kept("of response spans; generation spans do not have them"),
        "thoughts": kept("where the provider gives them"),
        "tags and user": changed("texts in the metadata of the trace"),
        **lost("cost", "finish reason", "metrics", "comments", "task and seed", "token ids"),
    },
)
