"""Write a training file from the steps of a dataset: whole or not at all, with a tally of what it lacks."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trajkit._files import refuse_existing, replacing
from trajkit.convert.lines import LineTally, lines_of
from trajkit.convert.steps import Steps
from trajkit.errors import DataError, NothingMatched, RequestError, StoreError
from trajkit.formats import format_named
from trajkit.formats.base import Format
from trajkit.schema import Model
from trajkit.store.dataset import Dataset

_NO_EVALUATION = "purpose <> 'eval'"


class Conversion(Model):
    """What a training file holds, and what it does not."""

    path: Path
    """The file."""
    format: str
    """Its format."""
    n_rows: int
    """Lines in it, one per step that is learned."""
    n_bytes: int
    """Its size."""
    sha256: str
    """Of its bytes."""
    store: Path
    """Where the steps came from."""
    store_digest: str
    """The content digest of that store."""
    n_episodes: int
    """Episodes that were looked at."""
    n_steps: int
    """Their steps."""
    n_evaluation_episodes: int
    """Those of them that were played for evaluation."""
    left: dict[str, int]
    """Steps that gave no line, by reason; with `n_rows` they add up to `n_steps`."""
    losses: dict[str, int]
    """What the lines do not say although the steps did, by kind."""
    warnings: tuple[str, ...]
    """What a user should know before using the file."""


def convert(
    dataset: Dataset,
    goal: Path,
    *,
    to: str | Format,
    include_eval: bool = False,
    strict: bool = False,
    skip_bad: bool = False,
) -> Conversion:
    """Write one line per step that is learned: its prompt and its answer.

    A step is learned when its weight is above 0, its prompt is known and it has an answer. The lines are in
    the order of episode id and step. They are streamed: memory does not grow with their number.

    Args:
        dataset: Whose steps.
        goal: The file that exists afterwards. It must not exist before.
        to: The format, or the name of one.
        include_eval: Take episodes that were played for evaluation as well.
        strict: Fail when a line cannot say all that the step does.
        skip_bad: Leave out the rows that would be refused, and count them, instead of failing.

    Raises:
        RequestError: There is no such format, or the dataset has evaluation episodes.
        DataError: A row would be refused by those the file is for, or something is lost and `strict`.
        NothingMatched: No step is learned.
        StoreError: `goal` exists or cannot be written, or the store cannot be read.
    """
    form = format_named(to) if isinstance(to, str) else to
    refuse_existing(goal)
    with Steps(dataset) as steps:
        if steps.n_evaluation and not include_eval:
            raise _evaluation(dataset, steps.n_evaluation)
        tally = LineTally()
        with _writing(goal), replacing(goal) as temporary:
            written = _write(steps, temporary, form, tally)
            _refuse_what_is_wrong(tally, form, strict=strict, skip_bad=skip_bad)
            if not written.n_rows:
                raise _nothing(dataset, tally)
            refuse_existing(goal)
        return Conversion(
            path=goal,
            format=form.name,
            n_rows=written.n_rows,
            n_bytes=written.n_bytes,
            sha256=written.digest.hexdigest(),
            store=dataset.store.path,
            store_digest=dataset.store.manifest.digest,
            n_episodes=steps.n_episodes,
            n_steps=steps.n_steps,
            n_evaluation_episodes=steps.n_evaluation,
            left=dict(sorted(tally.left.items())),
            losses=dict(sorted(tally.losses.items())),
            warnings=tuple(_warnings(written.n_rows, form, steps.n_evaluation)),
        )


class _Sink:
    """Counts and hashes what it writes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.n_rows = 0
        self.n_bytes = 0

    def write(self, lines: list[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode("utf-8")
        self._file.write(data)
        self.digest.update(data)
        self.n_rows += len(lines)
        self.n_bytes += len(data)


def _write(steps: Steps, path: Path, form: Format, tally: LineTally) -> _Sink:
    with path.open("wb") as file:
        sink = _Sink(file)
        for batch in steps.batches(form.plain_sql):
            sink.write(lines_of(batch, form, tally))
    return sink


@contextlib.contextmanager
def _writing(goal: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{goal} could not be written: {error.strerror or error}") from error


def _refuse_what_is_wrong(tally: LineTally, form: Format, *, strict: bool, skip_bad: bool) -> None:
    if tally.n_refused and not skip_bad:
        more = tally.n_refused - len(tally.refusals)
        listed = "; ".join(tally.refusals) + (f"; and {more:,} more" if more else "")
        raise DataError(
            f"{_plural(tally.n_refused, 'row')} would be refused as {form.name}: {listed}",
            hint="leave such rows out and count them with --skip-bad (skip_bad=True)",
        )
    if tally.losses and strict:
        raise DataError(
            f"{form.name} cannot carry {counted(tally.losses)}; the first at {tally.first_loss}",
            hint="without --strict (strict=True) they are left out and counted",
        )


def counted(losses: dict[str, int]) -> str:
    """Losses in words: `3 thoughts, 1 file`."""
    return ", ".join(_plural(number, kind) for kind, number in sorted(losses.items()))


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _evaluation(dataset: Dataset, n_evaluation: int) -> RequestError:
    return RequestError(
        f"{dataset.store.path} has {_plural(n_evaluation, 'evaluation episode')}; they must not train",
        hint=f'leave them out with --where "{_NO_EVALUATION}", or insist with --include-eval',
    )


def _nothing(dataset: Dataset, tally: LineTally) -> NothingMatched:
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(tally.left.items()))
    return NothingMatched(
        f"no step of {dataset.store.path} gives a training row",
        hint=f"steps left out: {reasons}" if reasons else "no episode with a step was chosen",
    )


def _warnings(n_rows: int, form: Format, n_evaluation: int) -> Iterator[str]:
    if n_rows < form.min_rows:
        yield f"{_plural(n_rows, 'row')}: {form.name} wants at least {form.min_rows}, or the file is refused"
    if n_evaluation:
        yield f"training takes in {_plural(n_evaluation, 'evaluation episode')}: what they measure is void"
