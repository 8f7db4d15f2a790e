"""The examples of an episode: one per step, or one per conversation that only grows."""

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
"""Why a step whose answer has neither text nor a tool call is not learned."""

_MESSAGES = TypeAdapter(tuple[Message, ...])


class Said(NamedTuple):
    """A step with its whole prompt."""

    place: Step
    """Which."""
    prompt: tuple[Message, ...] | None
    """Every message that the model saw; None when unknown."""
    answer: Message | None
    """What it said; None when no model did."""
    tools: tuple[JsonObject, ...]
    """Tools that it could call."""
    weight: float
    """How much it counts; 0 when it is not learned."""
    reason: str | None
    """Why it is not learned; None when it is."""
    n_characters: int
    """Size of the prompt and the answer, as the store spells them."""


class Lesson(NamedTuple):
    """An example, and the steps that it teaches."""

    example: Example
    """What a row will say."""
    steps: tuple[int, ...]
    """Positions in the episode of the steps that are learned, in the order of its answers."""


def said(rows: Sequence[dict[str, Any]], change: Callable[[Message], Message]) -> list[Said]:
    """The steps of an episode with their prompts, put together from what is new in each.

    Args:
        rows: Of `Steps.rows`: all steps of an episode, or some that keep nothing of the step before.
        change: Is applied to each message.

    Raises:
        DataError: A prompt or an answer in the store is not made of messages.
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
    """One lesson for each step that is learned."""
    for position, step in enumerate(steps):
        if step.reason is None and step.prompt is not None and step.answer is not None:
            messages = (*step.prompt, step.answer)
            weights = (*(0.0 for _ in step.prompt), step.weight)
            yield Lesson(Example(messages, weights, step.tools), (position,))


def merged_lessons(steps: Sequence[Said]) -> Iterator[Lesson]:
    """One lesson for each conversation in which every prompt is the one before, its answer, and more.

    A prompt that is otherwise, or other tools, begin a new one; what was copied into it is context there.
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
    """A conversation as it grows."""

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
    """Whether there is something to learn in an answer: text, or the call of a tool."""
    return any(
        isinstance(block, ToolCallBlock) or (isinstance(block, TextBlock) and block.text)
        for block in answer.content
    )


@functools.lru_cache(maxsize=64)
def _tools(text: str) -> tuple[JsonObject, ...]:
    """The tools of a step, which are mostly those of the step before."""
    return tuple(json.loads(text) or ())
