"""Make the rows of a training file, of all episodes or of those of one shard, and join those of shards."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from trajkit._core.division import Division, own_folder
from trajkit.curation.rows.calls import Calls
from trajkit.curation.rows.conversion import Progress
from trajkit.curation.rows.length import lengths_of
from trajkit.curation.rows.provenance import SPOOLED, Spooled
from trajkit.curation.rows.request import Options
from trajkit.curation.rows.spool import Spool, Written
from trajkit.curation.rows.steps import Span, Steps
from trajkit.curation.rows.tally import Tally
from trajkit.curation.rows.writers.lines import Lines
from trajkit.curation.rows.writers.taught import teach
from trajkit.formats import format_named
from trajkit.formats.base import JudgedFormat, SftFormat
from trajkit.formats.text import TEXT
from trajkit.store.chosen import Verb
from trajkit.store.dataset import Dataset
from trajkit.store.reader import open_store

_COPY = 1 << 24


class Task(NamedTuple):
    """One shard of a conversion."""

    store: str
    """Place of the store."""
    verbs: tuple[Verb, ...]
    """The verbs that choose the episodes of all shards."""
    span: Span
    """Those of this shard."""
    to: str
    """Name of the format."""
    asked: Options
    """The options."""
    folder: Path
    """Folder for its files."""


class Made(NamedTuple):
    """The rows of some episodes, in the order of their ids, and what they lack."""

    lines: Path
    """The rows, as JSON lines."""
    steps: tuple[Spooled, ...]
    """The origin of the rows, in files whose episodes follow each other."""
    written: Written
    """Size of the rows."""
    tally: Tally
    """Counts of steps and rows, and of what is left out."""
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
    with (
        contextlib.closing(Spool(work / "spool")) as spool,
        pq.ParquetWriter(work / "steps", SPOOLED, compression="zstd") as origins,
    ):
        calls = Calls(form.target, asked.tools)
        verdicts = _verdicts(dataset, asked.good) if isinstance(form, JudgedFormat) else {}
        lines = Lines(form, asked, calls, lengths, tally, verdicts)
        plain = None
        if isinstance(form, SftFormat) and form.plain and lengths is None and not calls.declares_tools:
            plain = form.plain(asked.unit)
        teach(steps, lines, plain, spool, origins, tally, progress)
        written = spool.finish(work / "lines")
    return Made(
        work / "lines",
        (Spooled(work / "steps", spool.is_in_order),),
        written,
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
    shards = division.map(make_shard, tasks)
    digest, tally = hashlib.sha256(), Tally()
    with (work / "lines").open("wb") as goal:
        for index, shard in enumerate(shards):
            tally.add(shard.tally.of_shard(index, len(shards)))
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
        tally,
        set().union(*(shard.columns for shard in shards)),
        shards[0].is_exact if shards else None,
    )


def _verdicts(dataset: Dataset, good: str | None) -> dict[str, bool]:
    """Return which episodes are good and which are bad, by id."""
    # not `not`: an episode without a value for the condition is neither good nor bad
    bad = f"({good}) = false" if good else "outcome IN ('failure', 'truncated')"
    verdicts: dict[str, bool] = {}
    for condition, verdict in ((good or "outcome = 'success'", True), (bad, False)):
        for batch in dataset.where(condition).arrow("episodes"):
            ids: list[Any] = batch.column("episode_id").to_pylist()
            verdicts.update(dict.fromkeys(ids, verdict))
    return verdicts
