"""What a training file does not hold, counted; and the errors that refuse to write one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trajkit.curation.rows.request import Options, Overlong
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.formats.base import Format, Loss, Problem, StartFormat, Unit
from trajkit.formats.validation.chat_rules import UNDECLARED

CONTEXT_ANSWER = "an answer that is only context would be learned"
"""The kind of problem of formats that learn every answer of a row."""
_MOST_SHOWN = 3
_NO_EVALUATION = "purpose <> 'eval'"


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


def refuse_what_is_wrong(tally: Tally, form: Format, asked: Options) -> None:
    """Raise where a row would be refused, is too long or loses something, unless that was asked for.

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
            hint="--overlong drop leaves them out, --overlong trim-history takes their oldest turns away",
        )
    if tally.losses and asked.strict:
        raise DataError(
            f"{form.name} cannot carry {counted(tally.losses)}; the first at {tally.first_loss}",
            hint="without --strict (strict=True) they are left out and counted",
        )


def _ways_out(tally: Tally, form: Format, asked: Options) -> Iterator[str]:
    """What keeps rows that would be refused, and last what leaves them out."""
    if tally.has_context_answer:
        if asked.unit == Unit.STEP:
            yield "make each conversation one row with all its answers: --unit episode"
        yield "write one answer for each row: --to trl-prompt-completion, openai-sft, together or fireworks"
    if tally.has_undeclared:
        yield "declare the tools that are called: --tools from-calls"
    if isinstance(form, StartFormat):
        yield "learn from what was played: trajkit rl local --from, or --to tinker, verl or prime-rl"
    yield "leave such rows out and count them: --skip-bad (skip_bad=True)"


def nothing(path: Path, left: Mapping[str, int], *, noun: str = "step") -> NothingMatched:
    """There is no row.

    Args:
        path: Where the steps came from.
        left: Why not, with how many of them.
        noun: What they are.
    """
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(left.items()))
    return NothingMatched(
        f"no {noun} of {path} gives a training row",
        hint=f"{noun}s left out: {reasons}" if reasons else f"no episode with a {noun} was chosen",
    )


def evaluation(path: Path, n_evaluation: int) -> RequestError:
    """There are evaluation episodes among those that would train."""
    return RequestError(
        f"{path} has {plural(n_evaluation, 'evaluation episode')}; they must not train",
        hint=f'leave them out with --where "{_NO_EVALUATION}", or insist with --include-eval',
    )


def _listed(shown: Sequence[str], n_all: int) -> str:
    more = n_all - len(shown)
    return "; ".join(shown) + (f"; and {more:,} more" if more else "")
