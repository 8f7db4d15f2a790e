"""Write a training file from the steps of a dataset, atomically, and count what it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trajkit._core.division import Division
from trajkit.curation.rows.conversion import Conversion, Progress, Saving, converted, facts, warnings_of
from trajkit.curation.rows.made import Made, make, make_in_shards
from trajkit.curation.rows.place import Place, is_folder
from trajkit.curation.rows.provenance import write_provenance
from trajkit.curation.rows.request import Options, checked
from trajkit.curation.rows.spool import as_kind
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.tally import Tally, counts_of, evaluation, nothing, refuse_what_is_wrong
from trajkit.curation.rows.writers.columns import write_experience, write_starts, write_table
from trajkit.curation.rows.writers.documents import write_documents
from trajkit.errors import RequestError
from trajkit.formats import format_named
from trajkit.formats.base import (
    EpisodeFormat,
    ExperienceFormat,
    Format,
    JudgedFormat,
    PreferenceFormat,
    SftFormat,
    StartFormat,
    TableFormat,
    Training,
    Unit,
)
from trajkit.store.dataset import Dataset


def convert(
    dataset: Dataset,
    goal: Path,
    *,
    to: str | Format,
    progress: Progress | None = None,
    division: Division | None = None,
    **options: Any,
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
        division: Makes the rows in several processes; None makes them in this one.
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
    if division is not None and not isinstance(form, SftFormat | JudgedFormat):
        raise RequestError(
            f"--on divides the rows of training files, and {form.name} is written in one piece"
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
            if division is None:
                rows = make(dataset, steps, form, asked, work, progress)
            else:
                name = to if isinstance(to, str) else form.name
                rows = make_in_shards(division, dataset, steps, name, asked, work)
            made = _write(dataset, steps, form, asked, place, work, rows, is_free=is_free)
    if made is not None:
        return made
    assert isinstance(form, SftFormat)
    assert form.otherwise is not None
    made = convert(dataset, goal, to=form.otherwise, progress=progress, division=division, **options)
    why = f"written as {made.format}: {form.name} learns every answer of a row, and some are only context"
    return made.model_copy(update={"warnings": (why, *made.warnings)})


def _write(
    dataset: Dataset,
    steps: Steps,
    form: SftFormat | JudgedFormat,
    asked: Options,
    place: Place,
    work: Path,
    made: Made,
    *,
    is_free: bool,
) -> Conversion | None:
    """Write the rows; None, and no file, if the format named by `SftFormat.otherwise` must be used."""
    tally, written = made.tally, made.written
    if is_free and tally.has_context_answer and isinstance(form, SftFormat) and form.otherwise:
        return None
    refuse_what_is_wrong(tally, form, asked)
    if not written.n_rows:
        raise nothing(dataset.store.path, tally.left)
    rows, written = as_kind(place.kind, made.lines, written, work, form.columns)
    saving = None
    if tally.is_merged:
        n, n_by_step = tally.n_characters, tally.n_characters_by_step
        saving = Saving(measure="characters", n=n, n_by_step=n_by_step)
    conversion = converted(
        form,
        dataset,
        steps,
        place,
        written,
        provenance=place.provenance,
        unit=asked.unit if isinstance(form, SftFormat) else None,
        n_learned=tally.n_learned,
        **counts_of(tally),
        n_tokens=tally.n_tokens,
        is_exact=bool(made.is_exact),
        saving=saving,
        warnings=(
            *warnings_of(form, written.n_rows, steps.n_evaluation),
            *_about_units(form, asked.unit, tally, is_free=is_free),
        ),
    )
    write_provenance(made.steps, work / "provenance", facts(conversion, asked))
    others: Mapping[str, str] = {}
    if isinstance(form, SftFormat) and form.files is not None and place.is_folder:
        training = Training(
            data=place.data.name,
            unit=asked.unit,
            model=asked.model,
            # a token has at least one byte, except those around messages: no row is longer than this
            max_tokens=asked.max_length or tally.n_longest_tokens or written.n_longest,
            columns=frozenset(made.columns),
        )
        others = form.files(training)
    place.settle(rows, work / "provenance", others)
    return conversion


def _about_units(form: SftFormat | JudgedFormat, unit: Unit, tally: Tally, *, is_free: bool) -> Iterator[str]:
    """Yield warnings about a unit that was chosen automatically, or that has no effect."""
    if unit == Unit.STEP or not isinstance(form, SftFormat):
        return
    if not tally.is_merged:
        yield f"{form.name} learns one answer of a row: the rows of --unit episode are those of --unit step"
    elif tally.n_characters < tally.n_characters_by_step:
        if is_free:
            yield (
                f"each row is a conversation (--unit episode): {form.name} learns every answer of a row, and "
                "rows of later steps would teach earlier answers again"
            )
    elif not is_free:
        yield "no prompt continues the previous one: each step is a row of its own"
