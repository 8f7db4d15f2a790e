"""Make sessions from rows of `results.jsonl`, or episodes of `traces.jsonl`, each a graph of messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.chat.turns import plain_cuts
from trajkit.formats.reading.document import BadDocument, object_at, objects_at, part_of, shown
from trajkit.schema import Message
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call, Score, Session

_UNTIMED = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of scores in a row without a time: a score must have one."""
_VERSION = 1
"""The newest supported version of the traces of verifiers."""
_NO_METRICS = ("id", "example_id", "reward", "answer", "is_completed", "is_truncated")
"""Numbers and booleans of a row that are not metrics."""


def is_row(value: Mapping[str, Any]) -> bool:
    """Whether a line is a rollout."""
    return {"prompt", "completion", "reward"} <= value.keys() and bool(
        {"example_id", "task", "metrics", "info", "timing", "is_completed"} & value.keys()
    )


def session_of_row(value: JsonObject, metadata: JsonObject, line: str) -> Session:
    """Return the session of a row.

    Args:
        value: The row.
        metadata: The metadata of the evaluation.
        line: The number of its line.

    Raises:
        BadDocument: It is invalid.
    """
    timing = part_of(value, "timing")
    start = _time(timing.get("start_time", timing.get("start")))
    sampling = metadata.get("sampling_args")
    given = value.get("tool_defs") or part_of(value, "info").get("oai_tools") or metadata.get("tools")
    facts: dict[str, Any] = {
        "model_name": metadata.get("model") if isinstance(metadata.get("model"), str) else None,
        "settings": {name: item for name, item in sampling.items() if item is not None}
        if isinstance(sampling, dict)
        else None,
        "started_at": start,
        "tools": _tools_at(given),
    }
    if value.get("trajectory"):
        calls = list(_trajectory(objects_at(value["trajectory"], "trajectory"), facts))
    else:
        calls = list(_conversation(value, facts))
    calls = _timed(calls, objects_at(part_of(timing, "model").get("spans"), "timing.model.spans"))
    metrics = part_of(value, "metrics") if "metrics" in value else _old_metrics(value)
    scores = _scores_of({"reward": value.get("reward"), **metrics}, start)
    left = ("prompt", "completion", "trajectory", "reward", "metrics", "tool_defs", *metrics)
    origin: JsonObject = {name: item for name, item in value.items() if name not in left}
    if metadata:
        origin["metadata"] = metadata
    example, task = value.get("example_id", value.get("id")), value.get("task")
    env_id = metadata.get("env_id")
    named = str(example) if example is not None else "row"
    return Session(
        session_id=f"{named}-{line}",
        source="verifiers",
        calls=calls,
        scores=scores,
        origin=origin,
        env_id=env_id if isinstance(env_id, str) else None,
        task="/".join(str(one) for one in (task, example) if isinstance(one, str | int) and one != "")
        or None,
        is_named=False,
    )


def _old_metrics(value: JsonObject) -> JsonObject:
    """Return the metrics of a row of an early version, which are fields among the others."""
    return {
        name: item
        for name, item in value.items()
        if name not in _NO_METRICS and not name.endswith("_ms") and isinstance(item, int | float)
    }


def _timed(calls: list[Call], spans: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Return the calls with their own times, if there is one for each."""
    times = [(_time(span.get("start")), _time(span.get("end"))) for span in spans]
    if len(times) != len(calls):
        return calls
    return [
        replace(call, started_at=start, latency_s=max(0.0, (end - start).total_seconds()))
        if start is not None and end is not None
        else call
        for call, (start, end) in zip(calls, times, strict=True)
    ]


def _time(value: Any) -> datetime | None:
    """A time that is given in seconds; None for anything else, as 0 stands for unknown."""
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11
    return datetime.fromtimestamp(value, UTC) if is_time else None


def _scores_of(values: Mapping[str, Any], at: datetime | None, call_id: str | None = None) -> list[Score]:
    """Return the scores of a mapping; unknown ones are left out."""
    scores = []
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise BadDocument("a metric that is not a number", f"metrics.{name}", shown(value))
        number = value if isinstance(value, bool) else float(value)
        score_id = f"{call_id}/{name}" if call_id else name
        scores.append(
            Score(name=name, value=number, score_id=score_id, call_id=call_id, created_at=at or _UNTIMED)
        )
    return scores


def _talk(messages: Any, role: str, where: str) -> list[Message]:
    """The messages of a prompt or a completion, which may be a text, in the spellings of all versions."""
    if messages is None:
        return []
    if isinstance(messages, str):
        return conversation_of([{"role": role, "content": messages}], where)
    return conversation_of([_message(one, where) for one in objects_at(messages, where)], where)


def _message(one: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = ("role", "content", "tool_call_id", "name", "reasoning_content")
    message = {name: one[name] for name in known if one.get(name) is not None}
    message.setdefault("content", None)
    sent = one.get("tool_calls") or []
    if not isinstance(sent, list):
        raise BadDocument("not a list", f"{where}.tool_calls", shown(sent))
    calls = [_tool_call(call, where) for call in sent]
    return {**message, "tool_calls": calls} if calls else message


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    """A tool call: JSON in a text (until 0.1.9), flat, or as OpenAI spells it."""
    if isinstance(call, str):
        try:
            call = json.loads(call)
        except (ValueError, RecursionError):
            raise BadDocument("a call that is not JSON", where, shown(call)) from None
    call = dict(object_at(call, f"{where}.tool_calls"))
    if "function" in call:
        return dict(call)
    function = {"name": call.get("name"), "arguments": call.get("arguments")}
    return {"id": call.get("id"), "type": "function", "function": function}


def _flat_tools(tools: Any) -> Any:
    """Tools that are flat in the spelling of OpenAI."""
    if not isinstance(tools, list):
        return tools
    return [
        {"type": "function", "function": {name: item for name, item in tool.items() if name != "type"}}
        if isinstance(tool, dict) and "name" in tool and "function" not in tool
        else tool
        for tool in tools
    ]


def _tools_at(tools: Any) -> tuple[JsonObject, ...] | None:
    """Tools that are flat, as `tools_of` gives them; None without any."""
    return tools_of(_flat_tools(tools)) if tools else None


def _conversation(value: JsonObject, facts: dict[str, Any]) -> Iterator[Call]:
    """The calls of a row without its trajectory: each answer of the completion is one."""
    prompt = _talk(value.get("prompt"), "user", "prompt")
    completion = _talk(value.get("completion"), "assistant", "completion")
    at = 0
    for number, cut in enumerate(plain_cuts(completion)):
        at += cut.n_new
        yield Call(
            call_id=f"call-{number}", prompt=[*prompt, *completion[:at]], answer=completion[at], **facts
        )
        at += 1


def _trajectory(steps: Sequence[JsonObject], facts: dict[str, Any]) -> Iterator[Call]:
    for number, step in enumerate(steps):
        where = f"trajectory.{number}"
        tokens = part_of(step, "tokens", where)
        response = part_of(step, "response", where)
        usage = part_of(response, "usage", f"{where}.response")
        said = _talk(step.get("completion"), "assistant", f"{where}.completion")
        left = ("prompt", "completion", "tokens", "response")  # its reward is that of the rollout
        extra: JsonObject = {
            name: item for name, item in step.items() if name not in left and item not in (None, {}, [])
        }
        yield Call(
            call_id=f"call-{number}",
            prompt=_talk(step.get("prompt"), "user", f"{where}.prompt"),
            answer=said[0] if said else None,
            n_input_tokens=usage.get("prompt_tokens"),
            n_output_tokens=usage.get("completion_tokens"),
            finish_reason=part_of(response, "message", where).get("finish_reason"),
            prompt_token_ids=tokens.get("prompt_ids"),
            completion_token_ids=tokens.get("completion_ids"),
            logprobs=tokens.get("completion_logprobs") or None,
            extra=extra or None,
            **facts,
        )


def is_graph(value: Mapping[str, Any]) -> bool:
    """Whether a line is an episode with its traces."""
    return isinstance(value.get("traces"), list) and "env" in value and "task" in value


def session_of_graph(value: JsonObject) -> Session | None:
    """Return the session of an episode; None if no agent called a model.

    Raises:
        BadDocument: It is invalid, or of an unknown version.
    """
    calls: list[Call] = []
    scores: list[Score] = []
    traces = objects_at(value["traces"], "traces")
    kept: list[JsonObject] = []
    for number, trace in enumerate(traces):
        where = f"traces.{number}"
        version = trace.get("version", _VERSION)
        if version != _VERSION:
            raise BadDocument(f"an unknown version; known: {_VERSION}", f"{where}.version", shown(version))
        own = list(_calls(trace, where, run=None if number == 0 else str(trace.get("id") or number)))
        calls += own
        answered = [call.call_id for call in own if call.answer is not None]
        last = answered[-1] if answered and number else None
        if answered or not number:
            scores += _scores(trace, where, last)
        kept.append(
            {name: one for name, one in trace.items() if name not in ("nodes", "calls", "rewards", "metrics")}
        )
    if not calls:
        return None
    task, env = part_of(value, "task"), part_of(value, "env")
    key = task.get("key") or task.get("hash")
    name = value.get("id")
    return Session(
        session_id=name if isinstance(name, str) and name else "unnamed",
        source="verifiers",
        calls=calls,
        scores=scores,
        origin={**{name: one for name, one in value.items() if name != "traces"}, "traces": [*kept]},
        env_id=env.get("id") or None,
        task=key if isinstance(key, str) else None,
        is_named=isinstance(name, str) and bool(name),
    )


def _scores(trace: JsonObject, where: str, call_id: str | None) -> Iterator[Score]:
    """Yield the return, rewards and metrics of a trace; those of a further agent are at its last call."""
    at = _time(part_of(part_of(trace, "timing", where), "scoring", where).get("end"))
    values: dict[str, Any] = {}
    total = None
    for name, reward in part_of(trace, "rewards", where).items():
        if not isinstance(reward, dict) or not isinstance(reward.get("score"), int | float):
            continue
        values[name] = reward["score"]
        total = (total or 0.0) + reward["score"] * reward.get("weight", 1.0)
    yield from _scores_of({"reward": total, **values, **part_of(trace, "metrics", where)}, at, call_id)


def _calls(trace: JsonObject, where: str, *, run: str | None) -> Iterator[Call]:
    nodes = objects_at(trace.get("nodes"), f"{where}.nodes")
    facts = {one.get("node"): one for one in objects_at(trace.get("calls"), f"{where}.calls")}
    agent = part_of(trace, "agent", where)
    config = part_of(agent, "config", where)
    said: dict[int, Message] = {}
    for number, node in enumerate(nodes):
        at = f"{where}.nodes.{number}"
        (said[number],) = _talk([node.get("message")], "user", at)
    for number, node in enumerate(nodes):
        if not node.get("sampled"):
            continue
        at = f"{where}.nodes.{number}"
        path = _path(nodes, number, at)
        fact = facts.get(number, {})
        usage, span = part_of(fact, "usage", at), part_of(fact, "time", at)
        ids, mask = node.get("token_ids") or [], node.get("mask") or []
        n_scaffold = mask.index(True) if True in mask else len(ids)
        before = [one for place in path for one in nodes[place].get("token_ids") or []]
        start, end = _time(span.get("start")), _time(span.get("end"))
        sampling = fact.get("sampling")
        yield Call(
            call_id=f"{trace.get('id') or where}-{number}",
            prompt=[said[place] for place in path],
            answer=said[number],
            tools=_tools_at(nodes[path[0]].get("tools") if path else None) or _tools_at(trace.get("tools")),
            model_name=fact.get("model") or config.get("model"),
            agent_name=agent.get("name"),
            agent_run=run,
            started_at=start or _time(node.get("timestamp")),
            latency_s=max(0.0, (end - start).total_seconds()) if start and end else None,
            n_input_tokens=usage.get("prompt_tokens"),
            n_output_tokens=usage.get("completion_tokens"),
            cost_usd=usage.get("cost"),
            finish_reason=fact.get("finish_reason"),
            settings=sampling if isinstance(sampling, dict) and sampling else None,
            prompt_token_ids=[*before, *ids[:n_scaffold]] if ids else None,
            completion_token_ids=ids[n_scaffold:] if ids else None,
            logprobs=node.get("logprobs") or None,
            extra={"semantic_parents": node["semantic_parents"]} if node.get("semantic_parents") else None,
        )
    for place, fact in enumerate(objects_at(trace.get("calls"), f"{where}.calls")):
        if fact.get("error"):  # its prompt is unknown
            error = part_of(fact, "error", where)
            yield Call(
                call_id=f"{trace.get('id') or where}-failed-{place}",
                model_name=fact.get("model"),
                agent_name=agent.get("name"),
                agent_run=run,
                started_at=_time(part_of(fact, "time", where).get("start")),
                error=f"{error.get('type')}: {error.get('message')}",
            )


def _path(nodes: Any, number: int, where: str) -> list[int]:
    """Return the places of the nodes before a node, from the root on."""
    path: list[int] = []
    parent = nodes[number].get("parent")
    while parent is not None:
        is_before = isinstance(parent, int) and not isinstance(parent, bool) and 0 <= parent < number
        if not is_before:
            raise BadDocument("a parent that is not an earlier node", f"{where}.parent", shown(parent))
        path.append(parent)
        number, parent = parent, nodes[parent].get("parent")
    return path[::-1]
