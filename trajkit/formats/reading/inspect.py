"""Read samples of Inspect's logs (version 2), with their scores as metrics.

If the log has the model calls, each is a step with its exact prompt; otherwise the messages of the sample are
one conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.chat.turns import steps_of, steps_of_calls
from trajkit.formats.reading.atif_parts import compact
from trajkit.formats.reading.document import (
    BadDocument,
    Reading,
    episode_of,
    object_at,
    objects_at,
    part_of,
    shown,
)
from trajkit.schema import Message, Outcome

_GRADES = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
_ATTACHMENT = "attachment://"
_DEEP = 64


def is_inspect(value: Any) -> bool:
    """Whether a JSON value is a whole log."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("eval"), dict)
        and "version" in value
        and ("samples" in value or "status" in value)
    )


def read_sample(sample: dict[str, Any], log: dict[str, Any]) -> Reading:
    """Return the episode of a sample.

    Args:
        sample: The sample, as in the log.
        log: The log without its samples: `eval`, `version` and the like.

    Raises:
        BadDocument: It is not a sample.
    """
    spec = object_at(log.get("eval"), "eval")
    if "id" not in sample or "messages" not in sample:
        raise BadDocument("not a sample: it has no id or no messages", "", shown(sorted(sample)))
    sample = _with_attachments(sample)
    steps = _steps(sample, spec)
    limit = sample.get("limit")
    if steps and isinstance(limit, dict):
        steps[-1]["truncated"] = True
    metrics = dict(_scores(sample.get("scores")))
    fields = {
        "episode_id": _id(sample, spec),
        "source": "inspect",
        "env_id": spec.get("task"),
        "task": str(sample["id"]),
        "started_at": sample.get("started_at") or None,
        "ended_at": sample.get("completed_at") or None,
        "metrics": metrics,
        "outcome": _outcome(sample, metrics),
        "tags": {"epoch": str(sample.get("epoch", 1))},
        "origin": _origin(sample, spec, log),
        "steps": steps,
    }
    return Reading((episode_of(fields),))


def error_of(sample: dict[str, Any]) -> str | None:
    """Return why a sample failed, in few words; None if it did not."""
    error = sample.get("error")
    if not error:
        return None
    text = error.get("message") if isinstance(error, dict) else error
    return str(text).partition("(")[0].partition("\n")[0].strip()[:60] or "an error"


def _id(sample: dict[str, Any], spec: dict[str, Any]) -> str:
    if sample.get("uuid"):
        return str(sample["uuid"])
    run = spec.get("eval_id") or spec.get("task_id") or spec.get("run_id") or spec.get("task") or "inspect"
    return f"{run}-{sample['id']}-{sample.get('epoch', 1)}"


def _origin(sample: dict[str, Any], spec: dict[str, Any], log: dict[str, Any]) -> dict[str, Any]:
    facts = {
        **{name: spec.get(name) for name in ("eval_id", "run_id", "task_id", "task_version", "created")},
        "dataset": part_of(spec, "dataset", "eval").get("name"),
        "log_version": log.get("version"),
        "sample_id": sample["id"],
        "target": sample.get("target"),
        "metadata": sample.get("metadata") or None,
        "limit": sample.get("limit"),
        "error": (sample.get("error") or {}).get("message")
        if isinstance(sample.get("error"), dict)
        else None,
        "total_time_s": sample.get("total_time"),
    }
    return {"inspect": {name: value for name, value in facts.items() if value is not None}}


def _outcome(sample: dict[str, Any], metrics: Mapping[str, float]) -> Outcome:
    """Return the outcome: with one score, success if it is 1; with several it is unknown which one counts."""
    if sample.get("error"):
        return Outcome.ERROR
    if len(metrics) == 1:
        return Outcome.SUCCESS if next(iter(metrics.values())) >= 1 else Outcome.FAILURE
    return Outcome.TRUNCATED if sample.get("limit") else Outcome.UNKNOWN


def _scores(scores: Any) -> Iterator[tuple[str, float]]:
    for name, score in object_at(scores or {}, "scores").items():
        value = score.get("value") if isinstance(score, dict) else score
        parts = value.items() if isinstance(value, dict) else (("", value),)
        for part, one in parts:
            number = _number(one)
            if number is not None:
                yield f"{name}.{part}" if part else name, number


def _number(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    return _GRADES.get(value.lower()) if isinstance(value, str) else None


def _steps(sample: dict[str, Any], spec: dict[str, Any]) -> list[dict[str, Any]]:
    calls = [
        event
        for event in objects_at(sample.get("events"), "events")
        if event.get("event") == "model" and not event.get("error")
    ]
    pool = sample.get("message_pool") or part_of(sample, "events_data").get("messages") or []
    if not isinstance(pool, list):
        raise BadDocument("not a list", "message_pool", shown(pool))
    prompts = [_prompt(call, pool) for call in calls]
    if calls and None not in prompts:
        return list(steps_of_calls(_asked(calls, prompts)))
    messages = conversation_of([_chat(one) for one in objects_at(sample["messages"], "messages")])
    return [{**step, "model_name": spec.get("model")} for step in steps_of(messages)]


def _prompt(call: dict[str, Any], pool: Sequence[Any]) -> list[Any] | None:
    """Return the prompt of a call, which newer logs store once for all calls; None if it is missing."""
    given, references = call.get("input"), call.get("input_refs")
    if given:
        return list(objects_at(given, "events.model.input"))
    if not references:
        return None
    found: list[Any] = []
    for pair in references if isinstance(references, list) else [references]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, int) for n in pair)):
            raise BadDocument("not a range of messages", "events.model.input_refs", shown(pair))
        found += pool[pair[0] : pair[1]]
    return found


def _asked(
    calls: Sequence[dict[str, Any]], prompts: Sequence[list[Any] | None]
) -> Iterator[tuple[list[Message], Message | None, dict[str, Any]]]:
    for index, (call, sent) in enumerate(zip(calls, prompts, strict=True)):
        where = f"events.model.{index}"
        prompt = conversation_of([_chat(one) for one in sent or ()], f"{where}.input")
        output = object_at(call.get("output") or {}, f"{where}.output")
        choices = objects_at(output.get("choices"), f"{where}.output.choices")
        first = choices[0] if choices else {}
        answer = None
        if isinstance(first.get("message"), dict):
            (answer,) = conversation_of([_chat(first["message"])], f"{where}.output.choices.0.message")
        usage = part_of(output, "usage", f"{where}.output")
        facts = {
            "tools": tools_of(call.get("tools"), f"{where}.tools"),
            "model_name": output.get("model") or call.get("model"),
            "n_input_tokens": usage.get("input_tokens"),
            "n_output_tokens": usage.get("output_tokens"),
            "finish_reason": first.get("stop_reason"),
            "latency_s": output.get("time") or call.get("working_time"),
            "started_at": call.get("timestamp"),
        }
        yield prompt, answer, facts


def _chat(message: Any) -> dict[str, Any]:
    """Return a message of Inspect in the spelling of the chat API."""
    given = object_at(message, "messages")
    content = given.get("content")
    parts = content if isinstance(content, list) else None
    inner: list[dict[str, Any]] = []
    chat: dict[str, Any] = {"role": given.get("role"), "content": content if parts is None else inner}
    thoughts = []
    for part in parts or ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "reasoning":
            thoughts.append(str(part.get("reasoning") or ""))
        elif kind == "image":
            image = {"url": part.get("image"), "detail": part.get("detail")}
            inner.append({"type": "image_url", "image_url": image})
        elif kind == "text":
            inner.append({"type": "text", "text": part.get("text", "")})
        else:
            inner.append(part if isinstance(part, dict) and kind else {"type": "unknown", "data": part})
    if thoughts:
        chat["reasoning_content"] = "\n\n".join(thoughts)
    if not chat["content"]:
        chat["content"] = None
    if calls := given.get("tool_calls"):
        chat["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call.get("function"), "arguments": _arguments(call.get("arguments"))},
            }
            for call in objects_at(calls, "tool_calls")
        ]
    if given.get("role") == "tool":
        chat["tool_call_id"] = given.get("tool_call_id") or ""
        if given.get("function"):
            chat["name"] = given["function"]
        if (error := given.get("error")) and not chat["content"]:
            chat["content"] = str(error.get("message") if isinstance(error, dict) else error)
    return chat


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else compact({} if value is None else value)


def _with_attachments(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with its long texts in place, which the log stores separately."""
    attachments = sample.get("attachments")
    if not isinstance(attachments, dict) or not attachments:
        return sample
    return {
        name: value if name == "attachments" else _resolved(value, attachments, 0)
        for name, value in sample.items()
    }


def _resolved(value: Any, attachments: Mapping[str, Any], depth: int) -> Any:
    if depth > _DEEP:
        raise BadDocument(f"nested deeper than {_DEEP} levels", "events")
    match value:
        case str() if value.startswith(_ATTACHMENT):
            return attachments.get(value.removeprefix(_ATTACHMENT), value)
        case list():
            return [_resolved(item, attachments, depth + 1) for item in value]
        case dict():
            return {name: _resolved(item, attachments, depth + 1) for name, item in value.items()}
        case _:
            return value
