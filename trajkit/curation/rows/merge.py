"""Make the examples of an episode: one per step, or one per conversation that only grows."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from trajkit._core.outside import problem_of
from trajkit.curation.rows.tally import Step
from trajkit.errors import DataError
from trajkit.formats.base import Example
from trajkit.schema import Message, TextBlock, ToolCallBlock
from trajkit.schema.base import JsonObject

EMPTY_ANSWER = "empty answer"
"""Reason for which a step is not learned whose answer has neither text nor a tool call."""

_MESSAGES = TypeAdapter(tuple[Message, ...])


class Said(NamedTuple):
    """A step with its whole prompt."""

    place: Step
    prompt: tuple[Message, ...] | None
    """All messages that the model saw; None if unknown."""
    answer: Message | None
    """None if there is none."""
    tools: tuple[JsonObject, ...]
    """Tools that the model could call."""
    weight: float
    """Loss weight; 0 if the step is not learned."""
    reason: str | None
    """Why it is not learned; None if it is."""
    n_characters: int
    """Size of the prompt and the answer, as the store spells them."""


class Lesson(NamedTuple):
    """An example, and the steps that it teaches."""

    example: Example
    """Content of the row."""
    steps: tuple[int, ...]
    """Positions in the episode of the steps that are learned, in the order of its answers."""


def said(rows: Sequence[dict[str, Any]], change: Callable[[Message], Message]) -> list[Said]:
    """Return the steps of an episode with whole prompts, each rebuilt from the new messages of the steps.

    Args:
        rows: Rows of `Steps.rows`: all steps of an episode, or some that keep nothing of the previous step.
        change: Applied to each message.

    Raises:
        DataError: A prompt or an answer in the store is not valid.
    """
    steps = []
    before: tuple[Message, ...] = ()
    sizes: tuple[int, ...] = ()
    for row in rows:
        place = Step(row["episode_id"], row["step_index"])
        new = _parsed(_MESSAGES, row["messages"], place)
        answer = _parsed(_ANSWER, row["completion"], place)
        prompt = None if new is None else (*before[: row["n_prompt_kept"]], *map(change, new))
        answer = None if answer is None else change(answer)
        reason = row["reason"]
        if reason is None and answer is not None and not says_something(answer):
            reason = EMPTY_ANSWER
        weight = row["loss_weight"] if reason is None else 0.0
        sizes = (
            *sizes[: row["n_prompt_kept"]],
            *([len(row["messages"]), *([0] * (len(new) - 1))] if new else ()),
            *([] if answer is None else [len(row["completion"])]),
        )
        tools = _tools(row["tools"] or "null")
        steps.append(Said(place, prompt, answer, tools, weight, reason, sum(sizes)))
        before = () if prompt is None else prompt if answer is None else (*prompt, answer)
    return steps


def lessons(steps: Sequence[Said]) -> Iterator[Lesson]:
    """Yield one lesson for each learned step."""
    for position, step in enumerate(steps):
        if step.reason is None and step.prompt is not None and step.answer is not None:
            messages = (*step.prompt, step.answer)
            weights = (*(0.0 for _ in step.prompt), step.weight)
            yield Lesson(Example(messages, weights, step.tools), (position,))


def merged_lessons(steps: Sequence[Said]) -> Iterator[Lesson]:
    """Yield one lesson for each conversation, whose prompts each extend the previous prompt and answer.

    Another prompt, or other tools, begin a new conversation, in which copied messages are context.
    """
    conversation = _Conversation(())
    for position, step in enumerate(steps):
        if step.prompt is None:
            yield from conversation.lesson()
            conversation = _Conversation(())
            continue
        if not conversation.goes_on(step):
            yield from conversation.lesson()
            conversation = _Conversation(step.tools)
        conversation.add(step, position)
    yield from conversation.lesson()


class _Conversation:
    """A growing conversation."""

    def __init__(self, tools: tuple[JsonObject, ...]) -> None:
        self._tools = tools
        self._messages: tuple[Message, ...] = ()
        self._weights: list[float] = []
        self._steps: list[int] = []
        self._n_taught = 0

    def goes_on(self, step: Said) -> bool:
        n = len(self._messages)
        prompt = step.prompt or ()
        return n > 0 and step.tools == self._tools and prompt[:n] == self._messages

    def add(self, step: Said, position: int) -> None:
        self._messages = step.prompt or ()
        self._weights.extend(0.0 for _ in self._messages[len(self._weights) :])
        if step.answer is None:
            return
        self._messages = (*self._messages, step.answer)
        self._weights.append(step.weight)
        if step.reason is None:
            self._steps.append(position)
            self._n_taught = len(self._messages)

    def lesson(self) -> Iterator[Lesson]:
        if self._steps:
            example = Example(
                self._messages[: self._n_taught], tuple(self._weights[: self._n_taught]), self._tools
            )
            yield Lesson(example, tuple(self._steps))


_ANSWER = TypeAdapter(Message)


def _parsed(adapter: TypeAdapter[Any], text: str | None, place: Step) -> Any:
    if text is None or text == "null":
        return None
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise DataError(f"{place}: {problem_of(error)}") from error


def says_something(answer: Message) -> bool:
    """Whether an answer has text or a tool call to learn."""
    return any(
        isinstance(block, ToolCallBlock) or (isinstance(block, TextBlock) and block.text)
        for block in answer.content
    )


@functools.lru_cache(maxsize=64)
def _tools(text: str) -> tuple[JsonObject, ...]:
    """Parse the tools of a step; most steps have those of the previous one."""
    return tuple(json.loads(text) or ())
