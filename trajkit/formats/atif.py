"""ATIF 1.8, Harbor's trajectory format: an episode as one JSON document that Harbor's own models accept.

Values that ATIF has no field for (rewards, `terminated`, seeds, metrics, weights) are in `extra.trajkit` of
the document and of the agent's steps; `docs/formats.md` describes them.
"""

from __future__ import annotations

from typing import Any

from trajkit.formats.base import Document, EpisodeFormat
from trajkit.formats.chat.turns import arguments_value
from trajkit.formats.profile import KEY, episode_rest, plain, step_rest
from trajkit.formats.reading.atif import FACTS, VERSIONS, read_atif
from trajkit.formats.reading.atif_parts import compact, is_outside
from trajkit.formats.reading.document import of_one
from trajkit.schema import (
    Episode,
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    Transition,
)

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_AUDIO = (
    "audio/wav",
    "audio/mpeg",
    "audio/mp4",
    "audio/aac",
    "audio/ogg",
    "audio/flac",
    "audio/webm",
    "audio/aiff",
)
_TOTALS = {
    "n_input_tokens": "total_prompt_tokens",
    "n_output_tokens": "total_completion_tokens",
    "cost_usd": "total_cost_usd",
}


def write_atif(episode: Episode) -> Document:
    """Return the document of an episode; if it has no steps, one system step says so."""
    laid = _Steps()
    answers = []
    for step in episode.steps:
        for message in step.messages or ():
            laid.say(message)
        answers.append(laid.answer(step))
    if not laid.steps:
        laid.note("no steps were recorded")
    value = _frame(episode, laid.steps)
    read = read_atif(value).episodes[0]
    value["extra"] = {KEY: episode_rest(episode, read)}
    for answer, step, other in zip(answers, episode.steps, read.steps, strict=True):
        if rest := step_rest(step, other):
            answer["extra"] = {KEY: rest}
    return Document((value,))


ATIF = EpisodeFormat(
    name="atif",
    about="ATIF 1.8, Harbor's trajectories: a JSON document per episode",
    write=write_atif,
    read=of_one(read_atif),
    is_file=True,
)
"""Agent trajectories of Harbor and other tools with its format."""


class _Steps:
    """Writes messages and answers as ATIF steps."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self._asked: dict[str, str] = {}
        """Names of the tools that the previous step called, by call id; their results may follow."""

    def note(self, text: str) -> None:
        self._add("system", text)

    def say(self, message: Message) -> None:
        """Add a message that is not an answer of this episode."""
        if message.role == Role.ASSISTANT:
            self._agent(message)["is_copied_context"] = True
            return
        if message.role == Role.TOOL and self._is_result(message):
            self._observe(message)
            return
        self._asked = {}
        self._add("system" if message.role == Role.SYSTEM else "user", _content(message))

    def answer(self, step: Transition) -> dict[str, Any]:
        """Add the step of an answer; an empty step if no model gave one."""
        if step.completion is None:
            self._asked = {}
            laid = self._add("agent", "")
            laid["llm_call_count"] = 0
        else:
            laid = self._agent(step.completion)
            facts = {theirs: getattr(step, ours) for theirs, ours in FACTS.items()}
            known = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in facts.items()
                if value is not None
            }
            if known:
                laid["metrics"] = known
        if step.model_name is not None:
            laid["model_name"] = step.model_name
        if step.started_at is not None:
            laid["timestamp"] = plain(step.started_at)
        return laid

    def _add(self, source: str, message: Any) -> dict[str, Any]:
        step = {"step_id": len(self.steps) + 1, "source": source, "message": message}
        self.steps.append(step)
        return step

    def _agent(self, message: Message) -> dict[str, Any]:
        step = self._add("agent", _content(message))
        thoughts = [block.text for block in message.content if isinstance(block, ThoughtBlock) and block.text]
        if thoughts:
            step["reasoning_content"] = "\n\n".join(thoughts)
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        self._asked = {}
        laid = []
        for call in calls:
            if call.id not in self._asked:  # the profile keeps repeated ids
                self._asked[call.id] = call.name
                laid.append(_call(call))
        if laid:
            step["tool_calls"] = laid
        return step

    def _is_result(self, message: Message) -> bool:
        first = message.content[0] if message.content else None
        return isinstance(first, ToolResultBlock) and self._asked.get(first.id) == first.name

    def _observe(self, message: Message) -> None:
        first = message.content[0]
        assert isinstance(first, ToolResultBlock)
        parts = _parts(message)
        content: Any = [{"type": "text", "text": first.result}, *parts] if parts else first.result
        results = self.steps[-1].setdefault("observation", {"results": []})["results"]
        results.append({"source_call_id": first.id, "content": content})


def _frame(episode: Episode, steps: list[dict[str, Any]]) -> dict[str, Any]:
    models = {step.model_name for step in episode.steps}
    tools = next((step.tools for step in episode.steps if step.tools), None)
    agent: dict[str, Any] = {
        "name": episode.tags.get("agent") or "unknown",
        "version": episode.tags.get("agent_version") or "unknown",
    }
    if len(models) == 1 and None not in models:
        agent["model_name"] = models.pop()
    if tools:
        agent["tool_definitions"] = [{"type": "function", "function": tool} for tool in tools]
    totals: dict[str, Any] = {"total_steps": len(steps)}
    for ours, theirs in _TOTALS.items():
        numbers = [getattr(step, ours) for step in episode.steps]
        if numbers and None not in numbers:
            totals[theirs] = sum(numbers)
    return {
        "schema_version": VERSIONS[-1],
        "session_id": episode.episode_id,
        "trajectory_id": episode.episode_id,
        "agent": agent,
        "steps": steps,
        "final_metrics": totals,
    }


def _content(message: Message) -> Any:
    """Return one text as it is, anything else as parts."""
    parts = _parts(message)
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def _parts(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append({"type": "text", "text": text})
            case FileBlock(source_url=str(path), mime_type=str(kind)) if (
                kind in (*_IMAGES, *_AUDIO) and not is_outside(path) and not path.startswith("data:")
            ):
                source = {"media_type": kind, "path": path}
                parts.append({"type": "image" if kind in _IMAGES else "audio", "source": source})
            case ToolResultBlock(result=text) if message.role != Role.TOOL:
                parts.append({"type": "text", "text": text})  # a tool's result in a message of another role
    return parts


def _call(call: ToolCallBlock) -> dict[str, Any]:
    """Return a call with arguments as an object; a text that is not the usual spelling is kept beside it."""
    arguments = arguments_value(call.arguments)
    is_object = isinstance(arguments, dict)
    laid = {
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": arguments if is_object else {},
    }
    if not is_object or compact(arguments) != call.arguments:
        laid["extra"] = {KEY: call.arguments}
    return laid
