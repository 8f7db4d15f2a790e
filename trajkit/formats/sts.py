"""Session traces for the viewer of the Hugging Face Hub: a file of JSON lines per episode.

The first line describes the session, and each line after it is a message. The viewer ignores other keys of
the first line: trajkit stores the tools there, and values that a session has no field for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from trajkit.formats.base import Document, EpisodeFormat
from trajkit.formats.chat.conversation import chat_value, conversation_of, function_tool, tools_of
from trajkit.formats.chat.turns import answers_at, steps_of, turns_of
from trajkit.formats.profile import KEY, episode_from, profile_of
from trajkit.formats.reading.document import BadDocument, Reading, object_at, shown
from trajkit.schema import Episode, Message, Role
from trajkit.schema.base import JsonObject

_ROLES = ("user", "assistant", "system", "tool")
_TO_CHAT = {"reasoningContent": "reasoning_content", "toolCallId": "tool_call_id"}
_FROM_CHAT = {theirs: ours for ours, theirs in _TO_CHAT.items()}
_NOT_SAID = ("toolCalls", "timestamp", "model")


def is_sts(value: Any) -> bool:
    """Whether a line is the first of a session trace."""
    return isinstance(value, dict) and value.get("type") == "session" and "harness" in value


def read_sts(lines: Sequence[JsonObject]) -> Reading:
    """Return the episode of a session.

    Raises:
        BadDocument: It is not a session.
    """
    header = lines[0] if lines else {}
    if not is_sts(header):
        raise BadDocument("the first line is not a session", "lines.1", shown(header))
    sent, models, times = [], [], []
    for number, line in enumerate(lines[1:], 2):
        if line.get("type") != "message":
            raise BadDocument("not a message", f"lines.{number}.type", shown(line.get("type")))
        message = object_at(line.get("message"), f"lines.{number}.message")
        sent.append(_chat(message, f"lines.{number}.message"))
        if message.get("role") == "assistant":
            models.append(message.get("model"))
            times.append(_moment(message.get("timestamp"), f"lines.{number}.message.timestamp"))
    messages = conversation_of(sent, "lines")
    profile = header.get(KEY)
    episode = episode_from(_fields(header), messages, profile)
    tools = tools_of(header.get("tools"))
    if profile is None:
        episode = _with_facts(episode, messages, models, times, tools)
    return Reading((episode,), profile is not None, bool(header.get("id")))


def write_sts(episode: Episode) -> Document:
    """Return the lines of an episode."""
    turns = turns_of(episode)
    answers = iter([step for step in episode.steps if step.completion is not None])
    answered = set(answers_at(turns.cuts))
    lines: list[dict[str, Any]] = []
    for position, message in enumerate(turns.messages):
        value = _session_message(message)
        if position in answered:
            step = next(answers)
            if step.model_name is not None:
                value["model"] = step.model_name
            if step.started_at is not None:
                value["timestamp"] = int(step.started_at.timestamp() * 1000)
        lines.append({"type": "message", "message": value})
    header: dict[str, Any] = {"type": "session", "harness": "trajkit", "id": episode.episode_id}
    if name := "/".join(part for part in (episode.env_id, episode.task) if part):
        header["name"] = name
    tools = next((step.tools for step in episode.steps if step.tools), None)
    if tools:
        header["tools"] = [function_tool(tool) for tool in tools]
    messages = conversation_of([_chat(line["message"], "") for line in lines], "lines")
    read = Episode.model_validate({**_fields(header), "steps": steps_of(messages, turns.cuts)})
    header[KEY] = profile_of(episode, read, turns)
    return Document((header, *lines))


STS = EpisodeFormat(
    name="sts",
    about="session traces for the Hugging Face Hub's viewer: a file of JSON lines per episode",
    write=write_sts,
    read=lambda lines: read_sts(lines).episodes[0],
    is_lines=True,
    is_file=True,
)
"""Traces for the Hub's viewer, and not for training."""


def _fields(header: JsonObject) -> dict[str, Any]:
    known = ("type", "id", "name", "tools", KEY)
    others = {name: item for name, item in header.items() if name not in known}
    return {
        "episode_id": header.get("id") or "unnamed",
        "source": "sts",
        "task": header.get("name"),
        "origin": {"session": others},
    }


def _session_message(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = chat_value(message)
    value = {_FROM_CHAT.get(name, name): item for name, item in chat.items() if name != "tool_calls"}
    content: Any = value.get("content")
    if isinstance(content, list):  # the viewer shows only text
        value["content"] = "\n".join(part["text"] for part in content if part["type"] == "text")
    elif content is None:
        value["content"] = ""
    if "tool_calls" in chat:
        value["toolCalls"] = [{"id": call["id"], "function": call["function"]} for call in chat["tool_calls"]]
    return value


def _chat(message: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a message of a session in the spelling of the chat API."""
    if message.get("role") not in _ROLES:
        raise BadDocument("not a role", f"{where}.role", shown(message.get("role")))
    chat = {_TO_CHAT.get(name, name): item for name, item in message.items() if name not in _NOT_SAID}
    if not chat.get("content"):
        chat["content"] = None
    if message.get("toolCalls"):
        chat["tool_calls"] = message["toolCalls"]
    return chat


def _with_facts(
    episode: Episode,
    messages: Sequence[Message],
    models: Sequence[Any],
    times: Sequence[datetime | None],
    tools: tuple[JsonObject, ...] | None,
) -> Episode:
    """Add the models and times of the messages; every message of the assistant is an answer."""
    assert len(episode.steps) == sum(message.role == Role.ASSISTANT for message in messages)
    steps = tuple(
        step.model_copy(update={"model_name": model, "started_at": at, "tools": tools})
        for step, model, at in zip(episode.steps, models, times, strict=True)
    )
    known = [at for at in times if at is not None]
    return episode.model_copy(
        update={"steps": steps, "started_at": min(known, default=None), "ended_at": max(known, default=None)}
    )


def _moment(value: Any, where: str) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.fromtimestamp(float(value) / 1000, tz=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise BadDocument("not a time in milliseconds", where, shown(value)) from None
