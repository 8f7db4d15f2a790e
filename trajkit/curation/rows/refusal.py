"""Why a conversion writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trajkit.curation.rows.request import Options, Overlong
from trajkit.curation.rows.tally import Tally, counted, plural
from trajkit.errors import DataError, NothingMatched, RequestError
from trajkit.formats.base import Format, Unit

_NO_EVALUATION = "purpose <> 'eval'"


def refuse_what_is_wrong(tally: Tally, form: Format, asked: Options) -> None:
    """Raise where a row would be refused, is too long or loses something, unless that was asked for.

    Raises:
        DataError: One of these.
    """
    if tally.n_refused and not asked.skip_bad:
        raise DataError(
            f"{plural(tally.n_refused, 'row')} would be refused as {form.name}: "
            f"{_listed(tally.refusals, tally.n_refused)}",
            hint="; or ".join(_ways_out(tally, asked)),
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


def _ways_out(tally: Tally, asked: Options) -> Iterator[str]:
    """What keeps rows that would be refused, and last what leaves them out."""
    if tally.has_context_answer:
        if asked.unit == Unit.STEP:
            yield "make each conversation one row with all its answers: --unit episode"
        yield "write one answer for each row: --to trl-prompt-completion, openai-sft, together or fireworks"
    if tally.has_undeclared:
        yield "declare the tools that are called: --tools from-calls"
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
