"""What a pair teaches: the first answers of its two sides that say something else after the same prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from trajkit.curation.rows.merge import says_something
from trajkit.formats.base import Judged, Preference
from trajkit.schema import Message, ThoughtBlock, ToolCallBlock
from trajkit.schema.base import JsonObject

OTHER_PROMPT = "the two sides were given different prompts"
"""Why a pair teaches nothing: an answer is better or worse only after the same prompt."""


class PairTurn(Protocol):
    """One answer of a side, as `trajkit.curation.pair_file.Turn` has it."""

    @property
    def step_index(self) -> int:
        """The step of the episode."""

    @property
    def n_prompt_kept(self) -> int:
        """Leading messages of its prompt that are those of the turn before."""

    @property
    def messages(self) -> tuple[Message, ...] | None:
        """The messages after those; None when unknown."""

    @property
    def completion(self) -> Message | None:
        """The answer; None when there was none."""

    @property
    def loss_weight(self) -> float:
        """0 when it is context only."""


class PreferencePair(Protocol):
    """A pair, as `trajkit.curation.pair_file.Pair` is one."""

    @property
    def pair_id(self) -> str:
        """Its id."""

    @property
    def chosen_episode_id(self) -> str:
        """Whose continuation is better."""

    @property
    def rejected_episode_id(self) -> str:
        """Whose is worse."""

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What the model saw before the better one."""

    @property
    def tools(self) -> tuple[JsonObject, ...] | None:
        """The tools that it could call."""

    @property
    def chosen(self) -> Sequence[PairTurn]:
        """The better continuation."""

    @property
    def rejected(self) -> Sequence[PairTurn]:
        """The worse one."""


class Parted(NamedTuple):
    """Where the two sides of a pair part."""

    preference: Preference | None
    """What it teaches; None when nothing."""
    reason: str | None
    """Why nothing."""
    chosen_step: int
    """The step of the better side."""
    rejected_step: int
    """The step of the worse one."""
    sides: tuple[Judged, Judged] | None = None
    """The better answer and the worse one, each after its own prompt; None where one of them is not known."""
    n_later: int = 0
    """Turns after those, which no row can say."""


def part(pair: PreferencePair, change: Callable[[Message], Message]) -> Parted:
    """Find where the two sides say something else.

    Args:
        pair: The pair.
        change: Is applied to each message.
    """
    sides = (_turns(pair.prompt, pair.chosen, change), _turns(pair.prompt, pair.rejected, change))
    for number, (better, worse) in enumerate(zip(*sides, strict=False)):
        place = (better.step_index, worse.step_index)
        if better.prompt is None or worse.prompt is None:
            return Parted(None, "prompt unknown", *place)
        if better.answer is None or worse.answer is None:
            return Parted(None, "no answer", *place)
        is_same_prompt = better.prompt == worse.prompt
        if is_same_prompt and _sense(better.answer) == _sense(worse.answer):
            continue
        if not says_something(better.answer) or not says_something(worse.answer):
            return Parted(None, "empty answer", *place)
        if better.weight <= 0 or worse.weight <= 0:
            return Parted(None, "the first answers that differ are not both learned", *place)
        tools = tuple(pair.tools or ())
        judged = (
            Judged(better.prompt, better.answer, True, tools),
            Judged(worse.prompt, worse.answer, False, tools),
        )
        if not is_same_prompt:
            return Parted(None, OTHER_PROMPT, *place, judged)
        n_later = len(pair.chosen) + len(pair.rejected) - 2 * (number + 1)
        preference = Preference(better.prompt, better.answer, worse.answer, tools)
        return Parted(preference, None, *place, judged, n_later)
    return Parted(None, "one side only goes on where the other ends", *place)


class _Turn(NamedTuple):
    prompt: tuple[Message, ...] | None
    answer: Message | None
    step_index: int
    weight: float


def _turns(
    prompt: tuple[Message, ...], turns: Iterable[PairTurn], change: Callable[[Message], Message]
) -> Iterator[_Turn]:
    """The turns of a side with their prompts."""
    before = tuple(map(change, prompt))
    for turn in turns:
        answer = None if turn.completion is None else change(turn.completion)
        if turn.messages is None:
            yield _Turn(None, answer, turn.step_index, turn.loss_weight)
            before = ()
            continue
        full = (*before[: turn.n_prompt_kept], *map(change, turn.messages))
        yield _Turn(full, answer, turn.step_index, turn.loss_weight)
        before = full if answer is None else (*full, answer)


def _sense(answer: Message) -> list[Any]:
    """What an answer says: thoughts and the ids of calls make no difference."""
    return [
        block.model_copy(update={"id": ""}) if isinstance(block, ToolCallBlock) else block
        for block in answer.content
        if not isinstance(block, ThoughtBlock)
    ]
