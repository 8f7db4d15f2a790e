"""Read rollouts of BenchFlow: its rewards as metrics, and the most detailed of its traces.

A rollout has the model calls as they were sent (`llm_trajectory.jsonl`), an ATIF document
(`trainer/atif.json`) and the events of its protocol (`acp_trajectory.jsonl`). The calls have the exact
prompts; the events lack the arguments of tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.chat.turns import steps_of, steps_of_calls
from trajkit.formats.reading.atif import iso_time_at, read_atif
from trajkit.formats.reading.document import (
    BadDocument,
    Reading,
    episode_of,
    object_at,
    objects_at,
    part_of,
    shown,
)
from trajkit.formats.reading.harbor import fields_of, outcome_of, rewards_of, with_model
from trajkit.schema import Message, Role, TextBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock

_NESTED = ("rubric", "metrics", "details")


def is_rollout(value: Any) -> bool:
    """Whether a JSON value is the result of a rollout."""
    return (
        isinstance(value, dict)
        and {"task_name", "rewards"} <= value.keys()
        and bool({"rollout_name", "trial_name"} & value.keys())
        and "agent_info" not in value
    )


def error_of(result: dict[str, Any]) -> str | None:
    """Return how a rollout failed; None if it did not."""
    if result.get("error"):
        return str(result.get("error_category") or "agent error")
    if result.get("verifier_error"):
        return str(result.get("verifier_error_category") or "verifier error")
    summary = part_of(result, "trajectory_summary")
    is_partial = result.get("partial_trajectory") or summary.get("partial_trajectory")
    return "partial trajectory" if is_partial else None


def has_whole_calls(exchanges: Sequence[dict[str, Any]]) -> bool:
    """Whether every answered call went over the chat API, so that its prompt can be read."""
    bodies = [_bodies(exchange) for exchange in _answered(exchanges)]
    return bool(bodies) and all(
        isinstance(request.get("messages"), list) and isinstance(response.get("choices"), list)
        for request, response in bodies
    )


def read_calls(result: dict[str, Any], exchanges: Sequence[dict[str, Any]]) -> Reading:
    """Return the episode of a rollout, from its model calls.

    Raises:
        BadDocument: A call is not one of the chat API, or a reward is not a number.
    """
    steps = list(steps_of_calls(_calls(exchanges)))
    return _reading(result, {"steps": steps}, "llm_trajectory.jsonl")


def _calls(
    exchanges: Sequence[dict[str, Any]],
) -> Iterator[tuple[list[Message], Message, dict[str, Any]]]:
    for index, exchange in enumerate(_answered(exchanges)):
        where = f"exchanges.{index}"
        request, response = _bodies(exchange)
        prompt = conversation_of(request.get("messages"), f"{where}.request.body.messages")
        choices = objects_at(response.get("choices"), f"{where}.response.body.choices")
        first = choices[0] if choices else {}
        given = {**object_at(first.get("message"), f"{where}.message"), "role": "assistant"}
        (answer,) = conversation_of([given], f"{where}.message")
        usage = part_of(response, "usage", where)
        facts = {
            "tools": tools_of(request.get("tools"), f"{where}.request.body.tools"),
            "model_name": response.get("model") or request.get("model"),
            "n_input_tokens": usage.get("prompt_tokens"),
            "n_output_tokens": usage.get("completion_tokens"),
            "finish_reason": first.get("finish_reason"),
            "latency_s": _seconds(exchange.get("duration_ms")),
            "started_at": _time(part_of(exchange, "request", where).get("timestamp")),
        }
        yield prompt, answer, facts


def read_atif_of(result: dict[str, Any], trajectory: dict[str, Any]) -> Reading:
    """Return the episode of a rollout, from its ATIF document.

    Raises:
        BadDocument: It is not a trajectory, or a reward is not a number.
    """
    return _reading(result, fields_of(read_atif(trajectory).episodes[0]), "trainer/atif.json")


def read_events(result: dict[str, Any], events: Sequence[dict[str, Any]]) -> Reading:
    """Return the episode of a rollout, from the events of its protocol, which lack the arguments of tools.

    Raises:
        BadDocument: A reward is not a number.
    """
    return _reading(result, {"steps": steps_of(list(_messages(events)))}, "acp_trajectory.jsonl")


def _reading(result: dict[str, Any], fields: dict[str, Any], trace: str) -> Reading:
    if not is_rollout(result):
        raise BadDocument("not the result of a rollout", value=shown(sorted(result)))
    rewards = object_at(result.get("rewards") or {}, "rewards")
    flat = {name: value for name, value in rewards.items() if name not in _NESTED}
    nested = rewards_of(rewards.get("metrics"), "rewards.metrics")
    metrics = {**nested, **rewards_of(flat, "rewards"), **dict(_rubric(rewards.get("rubric")))}
    name = str(result.get("rollout_name") or result.get("trial_name") or result["task_name"])
    task = str(result["task_name"])
    named = (("agent", "agent"), ("skill_mode", "skill_mode"))
    kept_names = ("rollout_name", "trial_name", "agent_name", "model", "timing", "agent_result")
    others = {key: result[key] for key in kept_names if result.get(key) is not None}
    steps = fields["steps"]
    own = {
        **fields,
        "episode_id": name if name.startswith(f"{task}__") else f"{task}__{name}",
        "source": "benchflow",
        "task": task,
        "started_at": _time(result.get("started_at")) or fields.get("started_at"),
        "ended_at": _time(result.get("finished_at")) or fields.get("ended_at"),
        "metrics": metrics,
        "outcome": outcome_of(metrics, is_error=error_of(result) is not None),
        "tags": {tag: str(result[key]) for tag, key in named if result.get(key)},
        "origin": {**(fields.get("origin") or {}), "benchflow": {**others, "trace": trace}},
        "steps": steps,
    }
    episode = episode_of(own)
    steps = with_model(episode.steps, result.get("model"))
    return Reading((episode.model_copy(update={"steps": steps}),))


def _rubric(rubric: Any) -> Iterator[tuple[str, float]]:
    for position, item in enumerate(objects_at(rubric, "rewards.rubric")):
        name = str(item.get("name") or f"rubric_{position}")
        yield from rewards_of({name: item.get("score")}, f"rewards.rubric.{position}").items()


def _answered(exchanges: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in exchanges if part_of(one, "response").get("status_code", 200) == 200]


def _bodies(exchange: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    request = part_of(exchange, "request").get("body")
    response = part_of(exchange, "response").get("body")
    return (request if isinstance(request, dict) else {}), (response if isinstance(response, dict) else {})


def _messages(events: Sequence[dict[str, Any]]) -> Iterator[Message]:
    thoughts: list[ThoughtBlock] = []
    for number, event in enumerate(events, 1):
        text = str(event.get("text") or "")
        match event.get("type"):
            case "user_message":
                yield Message(role=Role.USER, content=(TextBlock(text=text),))
            case "agent_thought":
                thoughts.append(ThoughtBlock(text=text))
            case "agent_message":
                yield Message(role=Role.ASSISTANT, content=(*thoughts, TextBlock(text=text)))
                thoughts = []
            case "tool_call":
                call_id = str(event.get("tool_call_id") or f"call_{number}")
                name = str(event.get("kind") or "tool")
                call = ToolCallBlock(id=call_id, name=name, arguments="{}")
                said = [TextBlock(text=str(event["title"]))] if event.get("title") else []
                yield Message(role=Role.ASSISTANT, content=(*thoughts, *said, call))
                thoughts = []
                result = ToolResultBlock(id=call_id, name=name, result=_output(event.get("content")))
                yield Message(role=Role.TOOL, content=(result,))
            case "oracle":
                yield Message(role=Role.ASSISTANT, content=(TextBlock(text=str(event.get("command") or "")),))
            case other:
                raise BadDocument("not an event of the protocol", f"lines.{number}.type", shown(other))
    if thoughts:
        yield Message(role=Role.ASSISTANT, content=tuple(thoughts))


def _output(content: Any) -> str:
    """Return the text of a result, whose parts may be nested once more."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else ():
        inner = part.get("content") if isinstance(part, dict) else part
        while isinstance(inner, dict):
            inner = inner.get("text") or inner.get("content")
        own = part.get("text") if isinstance(part, dict) else None
        texts.append(str(own or inner or ""))
    return "\n".join(texts)


def _seconds(milliseconds: Any) -> float | None:
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if is_number and milliseconds > 0 else None


def _time(text: Any) -> datetime | None:
    return iso_time_at(text, "started_at") if isinstance(text, str) else None
