"""Read sessions from LangSmith: from its bulk export, or from runs and feedback as its client lists them.

A run is a span: of a model (`llm`), of a tool, or around them. LangChain logs messages as its own objects,
other clients in the form of the model's API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.chat.conversation import tools_of
from trajkit.formats.reading.document import BadDocument, shown, text_at, time_at
from trajkit.sources.calls import EARLIEST, Call, Gathered, Score, Session
from trajkit.sources.exchange import exchange_of
from trajkit.sources.files.exported import nested, nested_object, take_rows
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.source import Source, kept, lost
from trajkit.sources.spans.session import Targets, session_of
from trajkit.sources.spans.span import Span, count_of, listed, number_of, text_of
from trajkit.sources.wish import Wish

_THREAD = ("session_id", "thread_id", "conversation_id")
"""The metadata keys of a run that LangSmith reads as the thread."""
_KINDS = {"llm": "LLM", "tool": "TOOL"}
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "tool": "tool",
}
_NO_SETTINGS = ("model", "model_name", "tools", "functions", "stream", "_type", "messages")


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of files of runs and of feedback."""
    if "://" in place:
        raise RequestError(
            "LangSmith is read from files: those of a bulk export, or of JSON lines of `Client.list_runs`"
        )
    with Gathered() as gathered:
        traces: dict[str, str] = {}
        feedback: list[dict[str, Any]] = []
        yield from take_rows(Path(place), partial(_gather, gathered, traces, feedback))
        for one in feedback:  # a row of it names its run, but not always the trace
            if trace_id := traces.get(str(one["run_id"])) or one.get("trace_id"):
                gathered.add(f"trace {trace_id}", one, part="feedback")
        yield from gathered.sessions(_session, beside="feedback")


def _gather(
    gathered: Gathered, traces: dict[str, str], feedback: list[dict[str, Any]], row: dict[str, Any]
) -> None:
    if row.get("id") is None:
        raise BadDocument("a row without its id", "id")
    if "key" in row and "run_id" in row:
        feedback.append(row)
        return
    if "run_type" not in row:
        raise BadDocument("neither a LangSmith run nor feedback", value=shown(sorted(row)[:6]))
    trace_id = str(row.get("trace_id") or row["id"])
    gathered.add(f"trace {trace_id}", {**row, "trace_id": trace_id}, part="run")
    traces[str(row["id"])] = trace_id
    if (thread := _thread(row)) is not None:
        gathered.move(f"trace {trace_id}", f"session {thread}")


def _thread(run: dict[str, Any]) -> str | None:
    """Return the thread of a run. LangSmith's own `session_id` is the project."""
    metadata = _metadata(run)
    found = (text_of(metadata.get(name)) for name in _THREAD)
    return next((each for each in found if each), None) or text_of(run.get("thread_id"))


def _session(name: str, parts: Mapping[str, Sequence[dict[str, Any]]], *, is_named: bool) -> Session:
    """Make a session from its runs, which may occur more than once. It has no calls without a model."""
    runs = {str(run["id"]): run for run in parts.get("run", ())}
    spans = [_span(run, runs) for run in runs.values()]
    session = session_of(name, spans, "langsmith", is_named=is_named)
    calls = [_filled(call, runs[call.call_id]) for call in session.calls]
    targets = Targets(calls, spans)
    given = parts.get("feedback", ())
    told = {(str(one.get("run_id")), str(one.get("key"))) for one in given}
    scores = [score for one in given for score in _scores(one, runs, targets)]
    scores += [score for run in runs.values() for score in _averages(run, told, targets)]
    metadata: dict[str, Any] = {}
    tags: dict[str, str] = {}
    for run in runs.values():
        for key, value in _metadata(run).items():
            if not key.startswith(("ls_", "lc_")) and key not in _THREAD:
                metadata.setdefault(key, value)
        tags |= {str(tag): "true" for tag in listed(run.get("tags"))}
    if (user := text_of(metadata.pop("user_id", None))) is not None:
        tags["user_id"] = user
    project = next((str(run["session_id"]) for run in runs.values() if run.get("session_id")), None)
    origin = {**session.origin, **({"project_id": project} if project else {})}
    return replace(
        session,
        calls=calls,
        scores=scores,
        tags=tags,
        origin={**origin, **({"metadata": metadata} if metadata else {})},
    )


def _metadata(run: dict[str, Any]) -> dict[str, Any]:
    found = nested_object(nested_object(run.get("extra"), "extra").get("metadata"), "extra.metadata")
    return found or nested_object(run.get("metadata"), "metadata")


def _parent(run: dict[str, Any]) -> str | None:
    """Return the parent of a run: the named one, or the one before it in the dotted order."""
    named = text_of(run.get("parent_run_id"))
    order = str(run.get("dotted_order") or "").split(".")
    # such as 20261101T120000000000Z1b4e28ba-2fa1-11d2-883f-0016d3cca427
    return named or (order[-2].partition("Z")[2] if len(order) > 1 else None)


def _span(run: dict[str, Any], runs: Mapping[str, dict[str, Any]]) -> Span:
    kind = _KINDS.get(str(run.get("run_type")), "CHAIN")
    agent = text_of(_metadata(run).get("lc_agent_name"))
    around = runs.get(_parent(run) or "")
    # runs below a run also have its metadata
    starts = agent is not None and (around is None or _metadata(around).get("lc_agent_name") != agent)
    error = text_of(run.get("error"))
    attributes = {"openinference.span.kind": "AGENT" if starts and kind == "CHAIN" else kind}
    return Span(
        trace_id=text_at(run.get("trace_id"), f"{run['id']}.trace_id"),
        span_id=str(run["id"]),
        parent_id=_parent(run),
        name=text_of(run.get("name")) or "",
        started_at=time_at(run.get("start_time"), f"{run['id']}.start_time"),
        ended_at=time_at(run.get("end_time"), f"{run['id']}.end_time"),
        attributes={**attributes, **({"agent.name": agent} if starts and agent else {})},
        is_error=error is not None or run.get("status") == "error",
        status=error or "",
    )


def _filled(call: Call, run: dict[str, Any]) -> Call:
    """Return a call from its run."""
    metadata = _metadata(run)
    asked = nested_object(
        nested_object(run.get("extra"), "extra").get("invocation_params"), "extra.invocation_params"
    )
    told = exchange_of(_plain(nested(run.get("inputs"))), _plain(nested(run.get("outputs"))))
    tools = told.tools or (
        tools_of(asked["tools"], "invocation_params.tools") if asked.get("tools") else None
    )
    settings = {key: value for key, value in asked.items() if key not in _NO_SETTINGS and value is not None}
    extra = {**(call.extra or {}), **told.extra}
    for name in (
        "prompt_token_details",
        "completion_token_details",
        "first_token_time",
        "reference_example_id",
    ):
        if run.get(name):
            extra[name] = run[name]
    n_input, n_output = count_of(run.get("prompt_tokens")), count_of(run.get("completion_tokens"))
    return replace(
        call,
        prompt=told.prompt,
        answer=told.answer,
        tools=tools,
        model_name=told.model_name
        or text_of(asked.get("model") or asked.get("model_name") or metadata.get("ls_model_name")),
        n_input_tokens=told.n_input_tokens if n_input is None else n_input,
        n_output_tokens=told.n_output_tokens if n_output is None else n_output,
        cost_usd=number_of(run.get("total_cost")),
        finish_reason=told.finish_reason or _finish_reason(run),
        settings={**told.settings, **settings} or None,
        extra=extra,
    )


def _finish_reason(run: dict[str, Any]) -> str | None:
    match nested(run.get("outputs")):
        case {"generations": [[{"generation_info": {"finish_reason": str(reason)}}, *_], *_]}:
            return reason
    return None


def _plain(value: Any) -> Any:
    """Return a value in which LangChain's objects are chat messages."""
    match value:
        case list():
            return [_plain(one) for one in value]
        case {"type": "constructor", "kwargs": dict() as own, "id": [*_, str(name)]}:
            kind = own.get("type") or name.removesuffix("Message").lower()
            return _message({**own, "type": "ai" if kind == "aimessagechunk" else kind})
        case {"type": str(kind), "content": _} if kind in _ROLES and "role" not in value:
            return _message(value)
        case dict():
            return {name: _plain(one) for name, one in value.items()}
    return value


def _message(own: dict[str, Any]) -> dict[str, Any]:
    role = _ROLES.get(own["type"], own["type"])
    found: dict[str, Any] = {"role": own.get("role") or role, "content": own.get("content")}
    calls = own.get("tool_calls")
    if isinstance(calls, list) and calls:
        found["tool_calls"] = [
            {
                "id": one.get("id") or "",
                "type": "function",
                "function": {"name": one.get("name"), "arguments": one.get("args") or {}},
            }
            for one in calls
            if isinstance(one, dict)
        ]
        if isinstance(found["content"], list):  # Anthropic's calls are also in the content
            kept = [
                one for one in found["content"] if not isinstance(one, dict) or one.get("type") != "tool_use"
            ]
            found["content"] = kept
    if own.get("tool_call_id"):
        found["tool_call_id"] = own["tool_call_id"]
    if isinstance(own.get("name"), str) and role != "assistant":
        found["name"] = own["name"]
    return found


def _scores(row: dict[str, Any], runs: Mapping[str, dict[str, Any]], targets: Targets) -> Iterator[Score]:
    """Yield the scores of a row of feedback."""
    name, score_id = text_at(row.get("key"), f"{row['id']}.key"), str(row["id"])
    run_id = text_of(row.get("run_id"))
    source = nested_object(row.get("feedback_source"), "feedback_source").get("type")
    at = time_at(row.get("created_at"), f"{row['id']}.created_at")
    if at is None:
        raise BadDocument("feedback without its time", f"{row['id']}.created_at")
    trace_id = text_of(row.get("trace_id")) or str(runs.get(run_id or "", {}).get("trace_id"))
    call_id = targets.call_of(run_id, trace_id)
    tags = {"run_id": run_id or "", **({"source": str(source)} if source else {})}
    score, value = row.get("score"), row.get("value")
    found = score if isinstance(score, bool) else number_of(score)
    texts = {"comment": row.get("comment"), "correction": row.get("correction")}
    score_of = partial(Score, name=name, call_id=call_id, created_at=at)
    if found is not None:
        yield score_of(value=found, score_id=score_id, tags=tags)
    else:
        texts = {"value": value, **texts}
    for what, text in texts.items():
        if text not in (None, "", {}):
            said = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
            yield score_of(value=said, score_id=f"{score_id}-{what}", tags={**tags, "of": what})


def _averages(run: dict[str, Any], told: set[tuple[str, str]], targets: Targets) -> Iterator[Score]:
    """Yield the feedback averages of a run, except those that were also exported as feedback."""
    run_id = str(run["id"])
    at = time_at(run.get("end_time") or run.get("start_time"), f"{run_id}.end_time")
    for name, stats in nested_object(run.get("feedback_stats"), "feedback_stats").items():
        if (run_id, name) in told or not isinstance(stats, dict):
            continue
        call_id = targets.call_of(run_id, str(run["trace_id"]))
        tags = {"run_id": run_id, "n": str(stats.get("n"))}
        texts = [*listed(stats.get("comments")), *(stats.get("values") or {})]
        average = number_of(stats.get("avg"))
        for number, value in enumerate([average, *texts]):
            if value is not None:
                yield Score(
                    name=name,
                    value=average if number == 0 and average is not None else str(value),
                    score_id=f"{run_id}-{name}-{number}",
                    call_id=call_id,
                    created_at=at or EARLIEST,
                    tags=tags,
                )


SOURCE = Source(
    name="langsmith",
    about="sessions of LangSmith: its bulk export, or JSON lines of its runs and feedback",
    read=read,
    fidelity={
        "session": kept("`session_id`, `thread_id` or `conversation_id` of the metadata"),
        "sub-agents": kept("where LangChain names the agent (`lc_agent_name`)"),
        "tool results": kept("those that a later prompt has"),
        "tools offered": kept("where `invocation_params` or the inputs have them"),
        "thoughts": kept("where the model's API gives them"),
        "images and files": kept("those that are in messages"),
        "metrics": kept("feedback with a score, else the averages of the run"),
        **lost("task and seed", "token ids"),
    },
)
