"""Read an episode of `traces.jsonl`: a graph of messages with tokens for each agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trajkit.formats.reading.document import BadDocument, objects_at, part_of, shown
from trajkit.schema import Message
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call, Score, Session
from trajkit.sources.verifiers.rows import scores_of, talk, time_of, tools_at

_VERSION = 1
"""The newest version of the traces of verifiers that is read."""


def is_graph(value: Mapping[str, Any]) -> bool:
    """Whether a line is an episode with its traces."""
    return isinstance(value.get("traces"), list) and "env" in value and "task" in value


def session_of_graph(value: JsonObject) -> Session | None:
    """Return the session of an episode; None where no agent called a model.

    Raises:
        BadDocument: It makes no sense, or is of a version that is not known.
    """
    calls: list[Call] = []
    scores: list[Score] = []
    traces = objects_at(value["traces"], "traces")
    kept: list[JsonObject] = []
    for number, trace in enumerate(traces):
        where = f"traces.{number}"
        version = trace.get("version", _VERSION)
        if version != _VERSION:
            raise BadDocument(
                f"a version that is not known; known: {_VERSION}", f"{where}.version", shown(version)
            )
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
    """The scores of a trace, those of a further agent at its last call: its return, rewards and metrics."""
    at = time_of(part_of(part_of(trace, "timing", where), "scoring", where).get("end"))
    values: dict[str, Any] = {}
    total = None
    for name, reward in part_of(trace, "rewards", where).items():
        if not isinstance(reward, dict) or not isinstance(reward.get("score"), int | float):
            continue
        values[name] = reward["score"]
        total = (total or 0.0) + reward["score"] * reward.get("weight", 1.0)
    yield from scores_of({"reward": total, **values, **part_of(trace, "metrics", where)}, at, call_id)


def _calls(trace: JsonObject, where: str, *, run: str | None) -> Iterator[Call]:
    nodes = objects_at(trace.get("nodes"), f"{where}.nodes")
    facts = {one.get("node"): one for one in objects_at(trace.get("calls"), f"{where}.calls")}
    agent = part_of(trace, "agent", where)
    config = part_of(agent, "config", where)
    said: dict[int, Message] = {}
    for number, node in enumerate(nodes):
        at = f"{where}.nodes.{number}"
        (said[number],) = talk([node.get("message")], "user", at)
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
        start, end = time_of(span.get("start")), time_of(span.get("end"))
        sampling = fact.get("sampling")
        yield Call(
            call_id=f"{trace.get('id') or where}-{number}",
            prompt=[said[place] for place in path],
            answer=said[number],
            tools=tools_at(nodes[path[0]].get("tools") if path else None) or tools_at(trace.get("tools")),
            model_name=fact.get("model") or config.get("model"),
            agent_name=agent.get("name"),
            agent_run=run,
            started_at=start or time_of(node.get("timestamp")),
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
        if fact.get("error"):  # nothing tells which prompt it had
            error = part_of(fact, "error", where)
            yield Call(
                call_id=f"{trace.get('id') or where}-failed-{place}",
                prompt=None,
                answer=None,
                model_name=fact.get("model"),
                agent_name=agent.get("name"),
                agent_run=run,
                started_at=time_of(part_of(fact, "time", where).get("start")),
                error=f"{error.get('type')}: {error.get('message')}",
            )


def _path(nodes: Any, number: int, where: str) -> list[int]:
    """The places of the nodes before a node, from the root on."""
    path: list[int] = []
    parent = nodes[number].get("parent")
    while parent is not None:
        is_before = isinstance(parent, int) and not isinstance(parent, bool) and 0 <= parent < number
        if not is_before:
            raise BadDocument("a parent that is no earlier node", f"{where}.parent", shown(parent))
        path.append(parent)
        number, parent = parent, nodes[parent].get("parent")
    return path[::-1]
