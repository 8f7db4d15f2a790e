"""Find what is wrong with a conversation before it is trained on, whatever format it came in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trajkit.formats.base import Problem
from trajkit.formats.reading.document import shown
from trajkit.schema import (
    Episode,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)

NO_STEPS = "no message of the assistant"
"""Reason for which a conversation is not an episode."""


def problems(episode: Episode, *, allows_system_anywhere: bool = False) -> Iterator[Problem]:
    """Yield problems, in the order of the steps.

    Args:
        episode: The episode that was read.
        allows_system_anywhere: Whether a system message may stand in the middle.
    """
    if not episode.steps:
        yield Problem(NO_STEPS, "steps")
    talk = _Talk(allows_system_anywhere=allows_system_anywhere)
    n_before = 0
    for step in episode.steps:
        where = f"steps.{step.step_index}"
        if step.messages is None or step.n_prompt_kept < n_before:
            talk.begin_anew()
        yield from talk.check(step.messages or (), f"{where}.messages")
        if step.completion is not None:
            yield from talk.check((step.completion,), f"{where}.completion")
            if _is_unknown(step.completion):
                yield Problem("an answer of which nothing is understood", f"{where}.completion")
        n_before = step.n_prompt_kept + len(step.messages or ()) + (step.completion is not None)


class _Talk:
    """Checks the messages of a conversation in order."""

    def __init__(self, *, allows_system_anywhere: bool) -> None:
        self._allows_system_anywhere = allows_system_anywhere
        self._called: set[str] = set()
        self._waiting: set[str] = set()
        self._is_begun = False

    def begin_anew(self) -> None:
        """Start over for a prompt that does not continue the previous one."""
        self._waiting = set()
        self._is_begun = False

    def check(self, messages: Sequence[Message], where: str) -> Iterator[Problem]:
        for position, message in enumerate(messages):
            at = where if where.endswith("completion") else f"{where}.{position}"
            if message.role != Role.SYSTEM:
                self._is_begun = True
            elif self._is_begun and not self._allows_system_anywhere:
                yield Problem("a message of the system in the middle", at, shown(message.text))
            yield from self._calls(message, at)
            if not _says_something(message):
                is_answer = message.role == Role.ASSISTANT
                kind = (
                    "an answer that says nothing" if is_answer else f"an empty message of the {message.role}"
                )
                yield Problem(kind, at)

    def _calls(self, message: Message, where: str) -> Iterator[Problem]:
        for index, block in enumerate(message.content):
            at = f"{where}.content.{index}"
            if isinstance(block, ToolCallBlock):
                if block.id in self._waiting and block.id:
                    yield Problem("a tool call id that is there twice", f"{at}.id", shown(block.id))
                self._called.add(block.id)
                self._waiting.add(block.id)
            elif isinstance(block, ToolResultBlock):
                if block.id not in self._called:
                    yield Problem("a tool result without its call", f"{at}.id", shown(block.id))
                self._waiting.discard(block.id)


def _is_unknown(answer: Message) -> bool:
    """Whether an answer has only content of unknown types; a refusal is known."""
    return bool(answer.content) and all(
        isinstance(block, UnknownBlock) and not (isinstance(block.data, dict) and "refusal" in block.data)
        for block in answer.content
    )


def _says_something(message: Message) -> bool:
    """Whether a message is not empty; the result of a tool may be."""
    return any(
        not isinstance(block, TextBlock | ThoughtBlock) or bool(block.text) for block in message.content
    )
