"""Read trajectories of SWE-agent (0.x, 1.x) and mini-swe-agent (1, 1.1), a file each, and their verdicts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.formats.chat.conversation import chat_value, conversation_of
from trajkit.formats.chat.response_items import conversation_of_items
from trajkit.formats.reading.document import BadDocument, object_at, objects_at, part_of, shown
from trajkit.schema import Message
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call, Score, Session, found_by
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import read_json
from trajkit.sources.files.walk import files_under, shown_path
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.wish import Wish

FROM_HISTORY = "the prompt as it was sent: it is taken from the history, which may have been shortened"
"""Episodes of SWE-agent before 1.0."""
_MINI = "mini-swe-agent-1"
_MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")
_SUFFIXES = (".traj", ".traj.json")
_MOST_JUDGED = 20_000_000
_MOST_LOOKED_AT = 200
_RESOLVED = ("resolved_ids", "resolved", "resolved_instances")
_JUDGED = ("completed_ids", "submitted_ids", "unresolved_ids", "applied", "generated", "no_generation")


class _Report(NamedTuple):
    """A report of SWE-bench."""

    folder: Path
    """Its folder: it judges the runs below."""
    resolved: frozenset[str]
    judged: frozenset[str]
    """All judged instances, also the resolved ones."""
    at: datetime
    """When the file was written: the report itself has no time."""


def _is_named_so(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES)


def read(place: str, _wish: Wish) -> Iterator[Found | Unread]:
    """Yield the trajectories below a path, a file each."""
    root = Path(place)
    within = root if root.is_dir() else None
    paths = list(files_under(root)) if within else [root]
    reports = list(_reports(paths, within)) if within else []
    for path in paths:
        if within and not _is_named_so(path):
            continue
        yield found_by(partial(_session, path, within, reports), shown_path(path, root))


def _reports(paths: list[Path], within: Path | None) -> Iterator[_Report]:
    """Yield the SWE-bench reports on the instances: files such as `results.json` beside them."""
    for path in paths:
        if path.suffix != ".json" or _is_named_so(path) or path.stat().st_size > _MOST_JUDGED:
            continue
        try:
            value = read_json(path, path.name, within)
        except BadDocument:
            continue  # not every JSON file of a run is a report
        if isinstance(value, dict) and any(isinstance(value.get(name), list) for name in _RESOLVED):
            resolved = frozenset(_texts(value, _RESOLVED))
            at = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
            yield _Report(path.parent, resolved, resolved | frozenset(_texts(value, _JUDGED)), at)


def _texts(value: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        found = value.get(name)
        yield from (one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def _session(path: Path, within: Path | None, reports: list[_Report]) -> Session:
    value = read_json(path, "the file", within)
    if isinstance(value, list):  # mini-swe-agent's messages alone
        value = {"messages": value, "info": {}}
    value = object_at(value, "the file")
    # mini-swe-agent had no name for its format at first
    is_first_mini = isinstance(value.get("messages"), list) and isinstance(value.get("info"), dict)
    if not (isinstance(value.get("trajectory"), list) or "trajectory_format" in value or is_first_mini):
        raise BadDocument("not a trajectory of SWE-agent or mini-swe-agent")
    said = value.get("instance_id")
    name = path.name.removesuffix(".json").removesuffix(".traj")
    instance = said if isinstance(said, str) and said else name
    info = part_of(value, "info")
    if "trajectory" in value:
        calls, missing = _swe_agent(value)
        rest = {name: one for name, one in value.items() if name not in ("trajectory", "history")}
    else:
        named = value.get("trajectory_format", _MINI)
        if not isinstance(named, str) or not (named == _MINI or named.startswith(f"{_MINI}.")):
            raise BadDocument(
                f"an unknown trajectory format; known: {_MINI}.x", "trajectory_format", shown(named)
            )
        calls, missing = list(_mini(value, info)), ()
        rest = {name: one for name, one in value.items() if name != "messages"}
    judging = [one for one in reports if path.is_relative_to(one.folder) and instance in one.judged]
    scores = [
        Score(name="resolved", value=instance in one.resolved, score_id=f"resolved-{n}", created_at=one.at)
        for n, one in enumerate(judging)
    ]
    return Session(
        session_id=instance,
        source="swe-agent",
        calls=calls,
        scores=scores,
        origin=rest,
        task=instance,
        missing=missing,
        is_named=False,  # the same instance is in every run
    )


def _swe_agent(value: JsonObject) -> tuple[list[Call], tuple[str, ...]]:
    steps = objects_at(value["trajectory"], "trajectory")
    history = objects_at(value.get("history"), "history")
    answers = [
        position
        for position, one in enumerate(history)
        if one.get("role") == "assistant" and not one.get("is_demo")
    ]
    model, settings = _model(value)
    calls, missing = [], False
    for number, step in enumerate(steps):
        where = f"trajectory.{number}"
        response = step.get("response")
        at = next((one for one in answers if _is_answer(history[one], step)), None)
        if at is not None:  # earlier ones were answered by steps that are gone
            answers = [one for one in answers if one > at]
        query = step.get("query", step.get("messages"))
        prompt: list[Message] | None
        if query is not None:
            prompt = _talk(objects_at(query, f"{where}.query"), f"{where}.query")
        else:
            missing = True
            prompt = None if at is None else _talk(history[:at], "history")
        answer = None
        if at is not None:
            (answer,) = _talk([history[at]], f"history.{at}")
        elif isinstance(response, str) and response:
            (answer,) = conversation_of([{"role": "assistant", "content": response}], where)
        left = ("query", "messages", "response")
        extra = {name: one for name, one in step.items() if name not in left and one not in (None, {}, "")}
        exits = ("exit_format", "exit_error", "exit_api", "exit_cost", "exit_context")
        error = step.get("action") if step.get("action") in exits else None
        calls.append(
            Call(
                call_id=f"step-{number}",
                prompt=prompt,
                answer=answer,
                model_name=model,
                settings=settings,
                error=error,
                extra=extra or None,
            )
        )
    return calls, (FROM_HISTORY,) if missing else ()


def _is_answer(said: Mapping[str, Any], step: Mapping[str, Any]) -> bool:
    """Whether a message of the history is the one that a step answered."""
    texts = [_plain(said.get("content")), said.get("thought")]
    response = step.get("response")
    if isinstance(response, str) and response.strip():
        return response in texts
    return bool(said.get("action")) and said.get("action") == step.get("action")


def _plain(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def _talk(messages: Sequence[Mapping[str, Any]], where: str) -> list[Message]:
    return conversation_of([_message(one) for one in messages], where)


def _message(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without the notes of the agent, such as `is_demo`."""
    message = {name: one[name] for name in _MESSAGE if one.get(name) is not None}
    message.setdefault("content", None)
    ids = one.get("tool_call_ids")
    if one.get("role") == "tool" and "tool_call_id" not in message and isinstance(ids, list) and ids:
        message["tool_call_id"] = ids[0]
    blocks = one.get("thinking_blocks")
    if isinstance(blocks, list) and "reasoning_content" not in message:
        texts = [str(each.get("thinking", "")) for each in blocks if isinstance(each, Mapping)]
        message["reasoning_content"] = "\n\n".join(filter(None, texts))
    return message


def _model(value: Mapping[str, Any]) -> tuple[str | None, JsonObject | None]:
    """Return name and settings of the model, from the replay configuration of a file."""
    config = value.get("replay_config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError):
            return None, None
    agent = config.get("agent") if isinstance(config, dict) else None
    model = agent.get("model") if isinstance(agent, dict) else None
    if not isinstance(model, dict):
        return None, None
    settings = {name: model[name] for name in ("temperature", "top_p") if model.get(name) is not None}
    name = model.get("name", model.get("model_name"))
    return name if isinstance(name, str) else None, settings or None


def _mini(value: JsonObject, info: Mapping[str, Any]) -> Iterator[Call]:
    config = part_of(part_of(info, "config"), "model")
    name, kwargs = config.get("model_name"), config.get("model_kwargs")
    before: list[dict[str, Any]] = []
    for number, one in enumerate(objects_at(value.get("messages"), "messages")):
        where = f"messages.{number}"
        extra = part_of(one, "extra", where)
        said: list[dict[str, Any]]
        if one.get("object") == "response":
            said = list(map(chat_value, conversation_of_items(one.get("output"), f"{where}.output")))
        elif "role" not in one:
            item = {key: value for key, value in one.items() if key != "extra"}
            said = list(map(chat_value, conversation_of_items([item], where)))
        else:
            said = [_message(one)]
        is_answer = bool(said) and said[0].get("role") == "assistant"
        failed = None if is_answer else _refused(extra)
        if is_answer or failed is not None:
            (answer, *_) = conversation_of(said if failed is None else [failed], where)
            yield Call(
                call_id=f"message-{number}",
                prompt=conversation_of(before),
                answer=answer,
                model_name=name if isinstance(name, str) else None,
                settings=kwargs if isinstance(kwargs, dict) and kwargs else None,
                error=None if failed is None else str(extra.get("interrupt_type", "FormatError")),
                **_facts(extra, one),
            )
        if one.get("role") != "exit":
            before += said


def _refused(extra: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer that a message complains about: it had a wrong format, and is not in the history."""
    response = extra.get("response")
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    message = choices[0].get("message")
    return _message({**message, "role": "assistant"}) if isinstance(message, dict) else None


def _facts(extra: Mapping[str, Any], one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the notes of an answer."""
    response = extra.get("response") if isinstance(extra.get("response"), dict) else one
    usage = object_at(response.get("usage") or {}, "usage")  # type: ignore[union-attr]
    choices = response.get("choices")  # type: ignore[union-attr]
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    at = extra.get("timestamp")
    is_time = isinstance(at, int | float) and not isinstance(at, bool) and 0 < at < 1e11
    rest = {name: item for name, item in extra.items() if name not in ("response", "cost", "timestamp")}
    return {
        "n_input_tokens": usage.get("prompt_tokens", usage.get("input_tokens")),
        "n_output_tokens": usage.get("completion_tokens", usage.get("output_tokens")),
        "cost_usd": extra.get("cost"),
        "finish_reason": first.get("finish_reason"),
        "started_at": datetime.fromtimestamp(at, UTC) if is_time else None,  # type: ignore[arg-type]
        "extra": rest or None,
    }


def _recognises(place: str) -> bool:
    path = Path(place)
    if "://" in place or not path.exists():
        return False
    if path.is_file():
        return _is_named_so(path)
    return any(map(_is_named_so, itertools.islice(files_under(path), _MOST_LOOKED_AT)))


SOURCE = Source(
    name="swe-agent",
    about="trajectories of SWE-agent (.traj) and mini-swe-agent (.traj.json), with SWE-bench's reports",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("the name of the instance"),
        "prompt": kept("of SWE-agent before 1.0 from its history, which may have been shortened"),
        "tool calls": kept("where the agent calls tools and does not write commands in its text"),
        "thoughts": kept("where the model gives them apart from its answer"),
        "tokens": kept("per call of mini-swe-agent; SWE-agent counts them per instance, in `origin`"),
        "cost": kept("per call of mini-swe-agent; SWE-agent counts it per instance, in `origin`"),
        "time": changed("mini-swe-agent: when the answer came; SWE-agent has no times"),
        "finish reason": kept("of mini-swe-agent"),
        "failed calls": kept("answers whose format was wrong"),
        "metrics": kept("`resolved`, where a report of SWE-bench is in the folder"),
        "task and seed": changed("the task is the name of the instance; there is no seed"),
        **lost("sub-agents", "tools offered", "latency", "comments", "tags and user", "token ids"),
    },
)
