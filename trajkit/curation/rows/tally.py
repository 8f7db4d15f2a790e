"""Count what a training file teaches and leaves out, and raise the errors that refuse to write one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.division import in_shard
from trajkit._core.output.console import plural
from trajkit.curation.rows.request import Options, Overlong
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.formats.base import Format, Loss, Problem, StartFormat, Unit
from trajkit.formats.validation.chat_rules import UNDECLARED

CONTEXT_ANSWER = "an answer that is only context would be learned"
"""Problem of formats that learn every answer of a row."""
_MOST_SHOWN = 3
_NO_EVALUATION = "purpose <> 'eval'"


class Step(NamedTuple):
    """One step, or one episode."""

    episode_id: str
    step_index: int | None = None
    """Position in the episode; None for the whole episode."""

    def __str__(self) -> str:
        return f"episode {self.episode_id}" + ("" if self.step_index is None else f" step {self.step_index}")


@dataclass
class Tally:
    """Counts the steps and rows, what is left out, and losses."""

    left: Counter[str] = field(default_factory=Counter)
    """Steps that are in no row, by reason."""
    losses: Counter[str] = field(default_factory=Counter)
    """Contents that the rows cannot carry, by kind."""
    first_loss: str = ""
    """Place of the first loss."""
    n_refused: int = 0
    """Rows that the target would refuse."""
    refusals: list[str] = field(default_factory=list)
    """The first few of them, with the reason."""
    has_undeclared: bool = False
    """Whether one of them calls an undeclared tool."""
    has_context_answer: bool = False
    """Whether one of them has an answer that is only context, and the training would learn it."""
    n_overlong: int = 0
    """Rows that are too long."""
    overlong: list[str] = field(default_factory=list)
    """The first few of them, with their length."""
    n_trimmed: int = 0
    """Rows that lost their oldest turns."""
    n_turns_trimmed: int = 0
    """Number of these turns."""
    n_stripped: int = 0
    """Thoughts that were left out as asked."""
    n_learned: int = 0
    """Steps that are in a row."""
    n_tokens: int | None = None
    """Tokens of all rows; None if they were not counted."""
    n_longest_tokens: int = 0
    """Tokens of the longest row; 0 if they were not counted."""
    is_merged: bool = False
    """Whether rows have several answers."""
    n_characters: int = 0
    """Size of the rows' messages in the store, if they are merged."""
    n_characters_by_step: int = 0
    """Size of the messages if each step had a row of its own."""

    def add(self, other: Tally) -> None:
        """Add the counts of the rows that come next."""
        self.left.update(other.left)
        self.losses.update(other.losses)
        self.first_loss = self.first_loss or other.first_loss
        self.n_refused += other.n_refused
        self.refusals = [*self.refusals, *other.refusals][:_MOST_SHOWN]
        self.has_undeclared |= other.has_undeclared
        self.has_context_answer |= other.has_context_answer
        self.n_overlong += other.n_overlong
        self.overlong = [*self.overlong, *other.overlong][:_MOST_SHOWN]
        self.n_trimmed += other.n_trimmed
        self.n_turns_trimmed += other.n_turns_trimmed
        self.n_stripped += other.n_stripped
        self.n_learned += other.n_learned
        if other.n_tokens is not None:
            self.n_tokens = (self.n_tokens or 0) + other.n_tokens
        self.n_longest_tokens = max(self.n_longest_tokens, other.n_longest_tokens)
        self.is_merged |= other.is_merged
        self.n_characters += other.n_characters
        self.n_characters_by_step += other.n_characters_by_step

    def of_shard(self, index: int, n: int) -> Tally:
        """Return the same with the number of a shard at each place."""
        return replace(
            self,
            first_loss=self.first_loss and in_shard(index, n, self.first_loss),
            refusals=[in_shard(index, n, each) for each in self.refusals],
            overlong=[in_shard(index, n, each) for each in self.overlong],
        )

    def refuse(self, place: Step, found: tuple[Problem, ...]) -> str:
        """Count a row that would be refused; return the reason, named after its first problem."""
        self.n_refused += 1
        kinds = {problem.kind for problem in found}
        self.has_undeclared |= UNDECLARED in kinds
        self.has_context_answer |= CONTEXT_ANSWER in kinds
        if len(self.refusals) < _MOST_SHOWN:
            self.refusals.append(f"{place}: {'; '.join(map(str, found[:_MOST_SHOWN]))}")
        return f"would be refused: {found[0].kind}"

    def too_long(self, place: Step, n_tokens: int, max_length: int) -> str:
        """Count a row that is too long; return the reason."""
        self.n_overlong += 1
        if len(self.overlong) < _MOST_SHOWN:
            self.overlong.append(f"{place}: {n_tokens:,}")
        return f"longer than {max_length:,} tokens"

    def lose(self, place: Step, losses: Iterable[Loss]) -> None:
        """Count the losses of a row."""
        for loss in losses:
            if not self.first_loss:
                self.first_loss = f"{place}: {loss.where}"
            self.losses[loss.kind.value] += 1


def counts_of(tally: Tally) -> dict[str, Any]:
    """Return the counts of what is left out, as fields of a conversion."""
    return {
        "left": dict(sorted(tally.left.items())),
        "losses": dict(sorted(tally.losses.items())),
        "n_stripped": tally.n_stripped,
        "n_trimmed": tally.n_trimmed,
        "n_turns_trimmed": tally.n_turns_trimmed,
    }


def counted(losses: Mapping[str, int]) -> str:
    """Write losses in words: `3 thoughts, 1 file`."""
    return ", ".join(plural(number, kind) for kind, number in sorted(losses.items()))


def refuse_what_is_wrong(tally: Tally, form: Format, asked: Options) -> None:
    """Raise if a row would be refused, is too long or loses something, unless the options allow it.

    Raises:
        DataError: One of these.
    """
    if tally.n_refused and not asked.skip_bad:
        raise DataError(
            f"{plural(tally.n_refused, 'row')} would be refused as {form.name}: "
            f"{_listed(tally.refusals, tally.n_refused)}",
            hint="; or ".join(_ways_out(tally, form, asked)),
        )
    if tally.n_overlong and asked.overlong == Overlong.ERROR:
        raise DataError(
            f"{plural(tally.n_overlong, 'row')} longer than {asked.max_length:,} tokens: "
            f"{_listed(tally.overlong, tally.n_overlong)}",
            hint="--overlong drop leaves them out, --overlong trim-history removes their oldest turns",
        )
    if tally.losses and asked.strict:
        raise DataError(
            f"{form.name} cannot carry {counted(tally.losses)}; the first at {tally.first_loss}",
            hint="without --strict (strict=True) they are left out and counted",
        )


def _ways_out(tally: Tally, form: Format, asked: Options) -> Iterator[str]:
    """Yield the options that repair refused rows, and last the one that leaves them out."""
    if tally.has_context_answer:
        if asked.unit == Unit.STEP:
            yield "make each conversation one row with all its answers: --unit episode"
        yield "write one answer for each row: --to trl-prompt-completion, openai-sft, together or fireworks"
    if tally.has_undeclared:
        yield "declare the tools that are called: --tools from-calls"
    if isinstance(form, StartFormat):
        yield "learn from the played episodes: trajkit rl local --from, or --to tinker, verl or prime-rl"
    yield "leave such rows out and count them: --skip-bad (skip_bad=True)"


def nothing(path: Path, left: Mapping[str, int], *, noun: str = "step") -> NothingMatched:
    """Return the error that there is no row.

    Args:
        path: The source of the steps.
        left: Counts of what was left out, by reason.
        noun: Their name.
    """
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(left.items()))
    return NothingMatched(
        f"no {noun} of {path} gives a training row",
        hint=f"{noun}s left out: {reasons}" if reasons else f"no episode with a {noun} was chosen",
    )


def evaluation(path: Path, n_evaluation: int) -> RequestError:
    """Return the error that the dataset has evaluation episodes."""
    return RequestError(
        f"{path} has {plural(n_evaluation, 'evaluation episode')}; never train on them",
        hint=f'leave them out with --where "{_NO_EVALUATION}", or insist with --include-eval',
    )


def _listed(shown: Sequence[str], n_all: int) -> str:
    more = n_all - len(shown)
    return "; ".join(shown) + (f"; and {more:,} more" if more else "")
