"""Make the rows of a training file, of all episodes or of those of one shard, and join those of shards."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.division import Division, own_folder
from trajkit.curation.rows.calls import Calls
from trajkit.curation.rows.length import Lengths, lengths_of
from trajkit.curation.rows.provenance import Provenance, Spooled
from trajkit.curation.rows.request import Options
from trajkit.curation.rows.spool import Spool, Written
from trajkit.curation.rows.steps import Span, Steps
from trajkit.curation.rows.tally import Tally
from trajkit.curation.rows.writers.lines import JudgedLines, Lines, SftLines, merges
from trajkit.curation.rows.writers.taught import Taught, teach
from trajkit.formats import format_named
from trajkit.formats.base import JudgedFormat, PlainText, SftFormat
from trajkit.formats.text import TEXT
from trajkit.store.chosen import Verb
from trajkit.store.dataset import Dataset
from trajkit.store.reader import open_store

Progress = Callable[[int, int], None]
"""Gets how many steps are done, and how many there are."""
_COPY = 1 << 24


class Task(NamedTuple):
    """One shard of a conversion."""

    store: str
    """Where the store is."""
    verbs: tuple[Verb, ...]
    """The verbs that choose the episodes of all shards."""
    span: Span
    """Those of this shard."""
    to: str
    """Name of the format."""
    asked: Options
    """The options."""
    folder: Path
    """Where its files go."""


class Made(NamedTuple):
    """The rows of some episodes, in the order of their ids, and what they lack."""

    lines: Path
    """The rows, as JSON lines."""
    steps: tuple[Spooled, ...]
    """The origin of the rows, in files whose episodes follow each other."""
    written: Written
    """Size of the rows."""
    taught: Taught
    """Counts of steps and rows."""
    tally: Tally
    """Counts of what is left out."""
    columns: set[str]
    """Columns of the rows that Python wrote."""
    is_exact: bool | None
    """Whether tokens are counted exactly; None if they are not counted."""


def make(
    dataset: Dataset,
    steps: Steps,
    form: SftFormat | JudgedFormat,
    asked: Options,
    work: Path,
    progress: Progress | None = None,
) -> Made:
    """Make the rows of the chosen steps.

    Args:
        dataset: The dataset.
        steps: Its steps, or those of a shard.
        form: The format.
        asked: The options.
        work: A folder for the files.
        progress: Gets the steps done, and how many there are.

    Raises:
        DataError: A prompt or an answer in the store is not valid.
    """
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
        written = spool.finish(work / "lines")
    return Made(
        work / "lines",
        (Spooled(work / "steps", spool.is_in_order),),
        written,
        taught,
        tally,
        lines.columns,
        None if lengths is None else lengths.is_exact,
    )


def make_shard(task: Task) -> Made:
    """Make the rows of one shard."""
    form = format_named(task.to)
    assert isinstance(form, SftFormat | JudgedFormat)
    dataset = Dataset(open_store(task.store), task.verbs)
    with Steps(dataset, task.span) as steps:
        return make(dataset, steps, form, task.asked, own_folder(task.folder, "rows"))


def make_in_shards(
    division: Division, dataset: Dataset, steps: Steps, to: str, asked: Options, work: Path
) -> Made:
    """Make the rows of the chosen steps in several processes; the result is that of `make`."""
    tasks = [
        Task(str(dataset.store.path), dataset.verbs, span, to, asked, division.folder)
        for span in steps.spans(division.n)
    ]
    return joined(division.map(make_shard, tasks), work)


def joined(shards: Sequence[Made], work: Path) -> Made:
    """Put the rows of shards together.

    Args:
        shards: In the order of their episodes.
        work: The folder for the file of all rows.
    """
    digest, tally, taught = hashlib.sha256(), Tally(), Taught()
    with (work / "lines").open("wb") as goal:
        for index, shard in enumerate(shards):
            tally.add(shard.tally.of_shard(index, len(shards)))
            taught.add(shard.taught)
            with shard.lines.open("rb") as source:
                while piece := source.read(_COPY):
                    goal.write(piece)
                    digest.update(piece)
    return Made(
        work / "lines",
        tuple(spooled for shard in shards for spooled in shard.steps),
        Written(
            sum(shard.written.n_rows for shard in shards),
            sum(shard.written.n_bytes for shard in shards),
            digest.hexdigest(),
            max((shard.written.n_longest for shard in shards), default=0),
        ),
        taught,
        tally,
        set().union(*(shard.columns for shard in shards)),
        shards[0].is_exact if shards else None,
    )


def _plain(form: SftFormat | JudgedFormat, asked: Options) -> PlainText | None:
    """Return how columns of plain text are written as rows; None if the format declares no way."""
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
