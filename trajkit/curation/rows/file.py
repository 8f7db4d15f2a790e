"""Write a training file from the steps of a dataset, atomically, and count what it lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trajkit.curation.rows.calls import Calls
from trajkit.curation.rows.conversion import Conversion, converted, facts, warnings_of
from trajkit.curation.rows.documents import write_documents
from trajkit.curation.rows.experience import write_experience
from trajkit.curation.rows.length import Lengths, lengths_of
from trajkit.curation.rows.lines import JudgedLines, Lines, SftLines, merges
from trajkit.curation.rows.place import Place, is_folder
from trajkit.curation.rows.provenance import Provenance
from trajkit.curation.rows.request import FileKind, Options, checked
from trajkit.curation.rows.spool import Spool, Written, write_parquet
from trajkit.curation.rows.start import write_starts
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.table import write_table
from trajkit.curation.rows.tally import Tally, evaluation, nothing, refuse_what_is_wrong, sorted_counts
from trajkit.curation.rows.taught import Taught, teach
from trajkit.errors import RequestError
from trajkit.formats import format_named
from trajkit.formats.base import (
    EpisodeFormat,
    ExperienceFormat,
    Format,
    JudgedFormat,
    PlainText,
    PreferenceFormat,
    SftFormat,
    StartFormat,
    TableFormat,
    Training,
    Unit,
)
from trajkit.formats.text import TEXT
from trajkit.store.dataset import Dataset

Progress = Callable[[int, int], None]
"""Gets how many steps are done, and how many there are."""


def convert(
    dataset: Dataset, goal: Path, *, to: str | Format, progress: Progress | None = None, **options: Any
) -> Conversion:
    """Write rows to train on, or whole episodes in another tool's format.

    A step is learned when its weight is above 0, its prompt is known and it has an answer. Rows are in the
    order of episode id and step. They are streamed: memory does not grow with their number.

    Without a unit, trajkit chooses one that the format can carry without learning other answers, or else
    another format; a warning names the choice.

    Args:
        dataset: The dataset.
        goal: The file or folder to write. It must not exist before.
        to: The format, or its name.
        progress: Gets the steps done, and how many there are.
        **options: The fields of `trajkit.curation.rows.request.Options`.

    Raises:
        RequestError: The format does not exist, an option does not fit it, or the dataset has evaluation
            episodes.
        DataError: The target would refuse a row, a row is too long, or something is lost and `strict`.
        NothingMatched: No step is learned.
        StoreError: `goal` exists or cannot be written, or the store cannot be read.
        MissingExtra: The tokenizer's package is not installed.
    """
    form = format_named(to) if isinstance(to, str) else to
    asked = checked(form, options)
    if isinstance(form, PreferenceFormat):
        raise RequestError(
            f"{form.name} is made of pairs, and {dataset.store.path} is a store",
            hint=f"trajkit pairs STORE --margin 0.1 -o PAIRS, then trajkit convert PAIRS --to {form.name}",
        )
    if isinstance(form, EpisodeFormat):
        return write_documents(dataset, goal, form, asked, progress)
    is_free = "unit" not in options
    kind = asked.kind_of(goal)
    has_files = isinstance(form, SftFormat) and form.files is not None and is_folder(goal)
    place = Place(goal, kind, is_folder=has_files)
    with Steps(dataset) as steps:
        if steps.n_evaluation and not asked.include_eval:
            raise evaluation(dataset.store.path, steps.n_evaluation)
        with place.open() as work:
            if isinstance(form, TableFormat):
                return write_table(dataset, steps, form, place, work, progress)
            if isinstance(form, ExperienceFormat):
                return write_experience(dataset, steps, form, asked, place, work, progress)
            if isinstance(form, StartFormat):
                return write_starts(dataset, steps, form, asked, place, work)
            made = _write(dataset, steps, form, asked, place, work, progress, is_free=is_free)
    if made is not None:
        return made
    assert isinstance(form, SftFormat)
    assert form.otherwise is not None
    made = convert(dataset, goal, to=form.otherwise, progress=progress, **options)
    why = f"written as {made.format}: {form.name} learns every answer of a row, and some are only context"
    return made.model_copy(update={"warnings": (why, *made.warnings)})


def _write(
    dataset: Dataset,
    steps: Steps,
    form: SftFormat | JudgedFormat,
    asked: Options,
    place: Place,
    work: Path,
    progress: Progress | None,
    *,
    is_free: bool,
) -> Conversion | None:
    """Write the rows; None, and no file, if the format named by `SftFormat.otherwise` must be used."""
    tally = Tally()
    lengths = lengths_of(asked, is_text=form is TEXT, tally=tally)
    with contextlib.ExitStack() as stack:
        spool = Spool(work / "spool")
        stack.callback(spool.close)
        provenance = Provenance(work / "steps")
        stack.callback(provenance.close)
        calls = Calls(form.target, asked.tools)
        lines = _lines(dataset, form, asked, calls, lengths, tally)
        plain = None if lengths is not None or calls.declares_tools else _plain(form, asked)
        is_merged = isinstance(form, SftFormat) and merges(form, asked.unit)
        taught = teach(steps, lines, plain, spool, provenance, merges=is_merged, progress=progress)
        tally.left.update(taught.left)
        if is_free and tally.has_context_answer and isinstance(form, SftFormat) and form.otherwise:
            return None
        refuse_what_is_wrong(tally, form, asked)
        written = spool.finish(work / "lines")
        if not written.n_rows:
            raise nothing(dataset.store.path, tally.left)
        rows = work / "lines"
        if place.kind == FileKind.PARQUET:
            rows = work / "rows"
            written = write_parquet(work / "lines", written, rows, form.columns)
        made = _conversion(dataset, steps, form, asked, place, written, taught, tally, is_free=is_free)
        if lengths is not None:
            made = made.model_copy(update={"is_exact": lengths.is_exact})
        provenance.finish(work / "provenance", facts(made, asked), is_in_order=spool.is_in_order)
        others = _other_files(form, asked, place, taught, written.n_longest, lines.columns)
        place.settle(rows, work / "provenance", others)
    return made


def _plain(form: SftFormat | JudgedFormat, asked: Options) -> PlainText | None:
    """Return how SQL writes rows of plain text; None if the format declares no way."""
    if isinstance(form, JudgedFormat) or form.plain is None:
        return None
    return form.plain(asked.unit)


def _lines(
    dataset: Dataset,
    form: SftFormat | JudgedFormat,
    asked: Options,
    calls: Calls,
    lengths: Lengths | None,
    tally: Tally,
) -> Lines:
    if isinstance(form, SftFormat):
        return SftLines(form, asked, calls, lengths, tally)
    good = asked.good or "outcome = 'success'"
    # not `not`: an episode without a value for the condition is neither good nor bad
    bad = f"({asked.good}) = false" if asked.good else "outcome IN ('failure', 'truncated')"
    verdicts: dict[str, bool] = {}
    for condition, verdict in ((good, True), (bad, False)):
        for batch in dataset.where(condition).arrow("episodes"):
            ids: list[Any] = batch.column("episode_id").to_pylist()
            verdicts.update(dict.fromkeys(ids, verdict))
    return JudgedLines(form, asked, calls, verdicts.get, lengths, tally)


def _other_files(
    form: SftFormat | JudgedFormat,
    asked: Options,
    place: Place,
    taught: Taught,
    n_longest: int,
    columns: set[str],
) -> Mapping[str, str]:
    if not isinstance(form, SftFormat) or form.files is None or not place.is_folder:
        return {}
    training = Training(
        data=place.data.name,
        unit=asked.unit,
        model=asked.model,
        # a token has at least one byte, except those around messages: no row is longer than this
        max_tokens=asked.max_length or taught.n_longest_tokens or n_longest,
        columns=frozenset(columns),
    )
    return form.files(training)


def _conversion(
    dataset: Dataset,
    steps: Steps,
    form: SftFormat | JudgedFormat,
    asked: Options,
    place: Place,
    written: Written,
    taught: Taught,
    tally: Tally,
    *,
    is_free: bool,
) -> Conversion:
    return converted(
        form,
        dataset,
        steps,
        place,
        written,
        provenance=place.provenance,
        unit=asked.unit if isinstance(form, SftFormat) else None,
        n_learned=taught.n_learned,
        **sorted_counts(tally),
        n_stripped=tally.n_stripped,
        n_trimmed=tally.n_trimmed,
        n_turns_trimmed=tally.n_turns_trimmed,
        n_tokens=taught.n_tokens,
        saving=taught.saving,
        warnings=(
            *warnings_of(form, written.n_rows, steps.n_evaluation),
            *_about_units(form, asked.unit, taught, is_free=is_free),
        ),
    )


def _about_units(
    form: SftFormat | JudgedFormat, unit: Unit, taught: Taught, *, is_free: bool
) -> Iterator[str]:
    """Yield warnings about a unit that was chosen automatically, or that has no effect."""
    if unit == Unit.STEP or not isinstance(form, SftFormat):
        return
    if not taught.is_merged:
        yield f"{form.name} learns one answer of a row: the rows of --unit episode are those of --unit step"
    elif taught.n_characters < taught.n_characters_by_step:
        if is_free:
            yield (
                f"each row is a conversation (--unit episode): {form.name} learns every answer of a row, and "
                "rows of later steps would teach the answers before them again"
            )
    elif not is_free:
        yield "no prompt continues the previous one: each step is a row of its own"
