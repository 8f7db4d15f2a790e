"""What a training file does not hold, counted; bounded, whatever the number of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trajkit.formats.base import Loss, Problem
from trajkit.formats.validation.chat_rules import UNDECLARED

CONTEXT_ANSWER = "an answer that is only context would be learned"
"""The kind of problem of formats that learn every answer of a row."""
_MOST_SHOWN = 3


class Step(NamedTuple):
    """One step of one episode."""

    episode_id: str
    """The episode."""
    step_index: int | None = None
    """Position in it; None for all of it."""

    def __str__(self) -> str:
        return f"episode {self.episode_id}" + ("" if self.step_index is None else f" step {self.step_index}")


class Tally:
    """Counts what was not written."""

    def __init__(self) -> None:
        self.left: Counter[str] = Counter()
        """Steps that are in no row, by reason."""
        self.losses: Counter[str] = Counter()
        """What the rows do not say, by kind."""
        self.first_loss = ""
        """Where the first of them is."""
        self.n_refused = 0
        """Rows that would be refused."""
        self.refusals: list[str] = []
        """The first few of them, with the reason."""
        self.has_undeclared = False
        """One of them calls a tool that it does not declare."""
        self.has_context_answer = False
        """One of them has an answer that is only context, and the training would learn it."""
        self.n_overlong = 0
        """Rows that are too long."""
        self.overlong: list[str] = []
        """The first few of them, with their length."""
        self.n_trimmed = 0
        """Rows that lost their oldest turns."""
        self.n_turns_trimmed = 0
        """How many turns that were."""
        self.n_stripped = 0
        """Thoughts that were left out as asked."""

    def refuse(self, place: Step, found: tuple[Problem, ...]) -> str:
        """Take note of a row that would be refused; gives the reason, under the first of its problems."""
        self.n_refused += 1
        kinds = {problem.kind for problem in found}
        self.has_undeclared |= UNDECLARED in kinds
        self.has_context_answer |= CONTEXT_ANSWER in kinds
        if len(self.refusals) < _MOST_SHOWN:
            self.refusals.append(f"{place}: {'; '.join(map(str, found[:_MOST_SHOWN]))}")
        return f"would be refused: {found[0].kind}"

    def too_long(self, place: Step, n_tokens: int, max_length: int) -> str:
        """Take note of a row that is too long; gives the reason."""
        self.n_overlong += 1
        if len(self.overlong) < _MOST_SHOWN:
            self.overlong.append(f"{place}: {n_tokens:,}")
        return f"longer than {max_length:,} tokens"

    def lose(self, place: Step, losses: Iterable[Loss]) -> None:
        """Take note of what a row does not say."""
        for loss in losses:
            if not self.first_loss:
                self.first_loss = f"{place}: {loss.where}"
            self.losses[loss.kind.value] += 1


def sorted_counts(tally: Tally) -> dict[str, dict[str, int]]:
    """What was left and what was lost, in the order of their names."""
    return {"left": dict(sorted(tally.left.items())), "losses": dict(sorted(tally.losses.items()))}


def counted(losses: Mapping[str, int]) -> str:
    """Losses in words: `3 thoughts, 1 file`."""
    return ", ".join(plural(number, kind) for kind, number in sorted(losses.items()))


def plural(number: int, noun: str) -> str:
    """A number of things in words: `1 row`, `1,200 rows`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"
