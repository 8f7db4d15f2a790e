"""The sessions that `record` kept, and what the model's server was sent and answered in them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.sources.coding.record import DATA
from trajkit.formats.chat.conversation import conversation_of
from trajkit.rollouts.recorder.calls.responses import ResponsesReader
from trajkit.schema import Episode, Message, ThoughtBlock, ToolCallBlock, ToolResultBlock

_BILLING = "x-anthropic-billing-header"


class Asked(NamedTuple):
    """A call as the server saw it."""

    script: str | None
    prompt: tuple[Message, ...]
    answer: dict[str, Any]
    tools: tuple[str, ...]


def unpacked(name: str, goal: Path, *, data: Path = DATA) -> Path:
    """Unpack an archive, and return the folder of sessions."""
    with tarfile.open(data / f"{name}.tar.xz") as tar:
        tar.extractall(goal, filter="data")
    return goal / "sessions"


def asked(folder: Path) -> list[Asked]:
    """What the server was sent and answered, beside the unpacked sessions of a folder."""
    found = json.loads((folder.parent / "asked.json").read_text())
    return [Asked(one["script"], tuple(_prompt(one)), one["answer"], tuple(one["tools"])) for one in found]


def _prompt(one: dict[str, Any]) -> Iterable[Message]:
    if "input" in one:
        return ResponsesReader({}).messages(one["input"])
    system = one.get("system")
    parts = [part for part in system or () if not part["text"].startswith(_BILLING)]
    first = [{"role": "system", "content": parts}] if parts else []
    return conversation_of([*first, *one["messages"]])


def assert_asked(
    episode: Episode,
    calls: Sequence[Asked],
    *,
    has_system: bool = True,
    has_tools: bool = False,
    is_cut: bool = False,
) -> None:
    """Assert that the steps of an episode are these calls: prompts, answers, and the tools offered."""
    assert episode.n_steps == len(calls), (episode.n_steps, [one.script for one in calls])
    for step, prompt, call in zip(episode.steps, episode.prompts(), calls, strict=True):
        assert prompt is not None
        sent = [one for one in call.prompt if has_system or one.role != "system"]
        first = 0
        if is_cut:  # sections of the system prompt are left out when it is sent
            assert set(sent[0].text.splitlines()) <= set(prompt[0].text.splitlines())
            first = 1
        assert list(plain(prompt[first:])) == list(plain(sent[first:])), (episode.episode_id, step.step_index)
        if "error" in call.answer:
            assert step.completion is None
            assert "error" in (step.extra or {})
            continue
        assert step.completion is not None
        text, thought = call.answer.get("text", ""), call.answer.get("thought", "")
        assert step.completion.text == text
        assert _thoughts(step.completion) == ([thought] if thought else [])
        calls_made = [block for block in step.completion.content if isinstance(block, ToolCallBlock)]
        assert [(one.name, json.loads(one.arguments)) for one in calls_made] == [
            (name.rpartition(":")[2], given) for name, given in call.answer.get("calls", ())
        ]
        if has_tools:
            assert [tool.get("name") for tool in step.tools or ()] == list(call.tools)


def _thoughts(message: Message) -> list[str]:
    blocks = [block for block in message.content if isinstance(block, ThoughtBlock)]
    summaries = [part["text"] for block in blocks for part in block.summary or () if isinstance(part, dict)]
    return [block.text for block in blocks if block.text] or [str(one) for one in summaries]


def answers(episode: Episode) -> list[str]:
    """The text of each answer."""
    return [step.completion.text for step in episode.steps if step.completion is not None]


def plain(messages: Iterable[Message]) -> Iterator[tuple[Any, ...]]:
    """Role, text, thoughts, calls and results of each message."""
    for message in messages:
        calls = [one for one in message.content if isinstance(one, ToolCallBlock)]
        results = [one for one in message.content if isinstance(one, ToolResultBlock)]
        yield (
            str(message.role),
            message.text,
            _thoughts(message),
            [(one.id, one.name, json.loads(one.arguments)) for one in calls],
            [(one.id, one.name, one.result) for one in results],
        )
