"""Make the files of a dataset repository: Parquet of every configuration, traces, and the record."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from trajkit._core.files import sha256_file, write_text
from trajkit.curation.rows.file import convert
from trajkit.errors import DataError, RequestError, StoreError
from trajkit.publishing.files.conversations import (
    MESSAGES,
    SFT,
    SplitRows,
    make_rows,
    message_fields,
    write_conversations,
)
from trajkit.publishing.files.restore import restore
from trajkit.publishing.files.shards import Shard
from trajkit.publishing.files.tables import shared_metrics, write_tables
from trajkit.publishing.record import RECORD, Moved, PublishedFile, PublishedStore, Record, record_text
from trajkit.store.dataset import Dataset
from trajkit.store.reader import Store

TRACES = "traces"
"""Name of the configuration of session traces, and of its folder."""
MOST_TRACES = 10_000
"""The Hub's recommended limit of files in a folder."""

OnProgress = Callable[[str, int, int | None], None]
"""Called with the current phase, the amount done, and the total amount (None when unknown)."""


class Contents(NamedTuple):
    """The files of a repository, except for its card."""

    folder: Path
    """Folder of the files, under the paths that they have in the repository."""
    record: Record
    """The record that describes them."""
    rows: tuple[SplitRows, ...]
    """The training rows, by split."""
    configurations: Mapping[str, Mapping[str, str]]
    """File pattern by split, by configuration; configurations without rows are left out. The first is the
    default."""

    @property
    def row_format(self) -> str:
        """Format of the training rows, the same in all splits."""
        return next((rows.format for rows in self.rows if rows.format is not None), MESSAGES)


def make_contents(
    splits: Mapping[str, Store],
    folder: Path,
    *,
    has_traces: bool = False,
    on_progress: OnProgress = lambda what, n_done, n_total: None,
) -> Contents:
    """Write the files, and read every store back from them.

    Args:
        splits: The stores by split, already verified.
        folder: Empty folder for the files.
        has_traces: Also write session traces for the Hub's viewer.
        on_progress: Called with the progress, in rows.

    Raises:
        RequestError: There are more traces than a folder of the Hub may have files.
        DataError: A metric is a number in one split and a boolean in another.
        StoreError: The disk is full, or the files read back with another digest.
    """
    if has_traces:
        _refuse_many(splits)
    metrics = shared_metrics(splits)
    stores: list[PublishedStore] = []
    shards: list[Shard] = []
    moved_rows: Counter[str] = Counter()
    moved_values: Counter[str] = Counter()
    counts = [store.manifest.counts for store in splits.values()]
    n_all = sum(each.n_episodes + each.n_steps + each.n_feedback for each in counts)
    n_done = 0

    def count(n_rows: int) -> None:
        nonlocal n_done
        n_done += n_rows
        on_progress("writing", n_done, n_all)

    for split, store in splits.items():
        written = write_tables(store, split, metrics, folder, on_rows=count)
        stores.append(written.store)
        shards += written.shards
        for table, (n_rows, n_values) in written.n_moved.items():
            moved_rows[table] += n_rows
            moved_values[table] += n_values
    on_progress("reading back", 0, len(stores))
    _prove(stores, folder, on_progress)
    rows = _conversations(splits, folder)
    for each in rows:
        shards += each.shards
        moved_rows[SFT] += each.n_moved
        moved_values[SFT] += each.n_moved
    if has_traces:
        shards += list(_traces(splits, folder))
    moved = tuple(
        Moved(table=table, n_rows=n_rows, n_values=moved_values[table])
        for table, n_rows in moved_rows.items()
        if n_rows
    )
    record = Record(stores=tuple(stores), moved=moved, files=tuple(_files(folder, shards)))
    write_text(folder / RECORD, record_text(record))
    return Contents(folder, record, rows, _configurations(record, rows, has_traces))


def contents_digest(record: Record) -> str:
    """Return a sha256 of a repository's content: the same for the same files under the same names."""
    lines = "".join(f"{file.path}:{file.sha256}\n" for file in sorted(record.files, key=lambda f: f.path))
    return hashlib.sha256(lines.encode()).hexdigest()


def _refuse_many(splits: Mapping[str, Store]) -> None:
    for split, store in splits.items():
        if (n := store.manifest.counts.n_episodes) > MOST_TRACES:
            raise RequestError(
                f"{split} has {n:,} episodes, one trace each; a folder of the Hub takes {MOST_TRACES:,}",
                hint="leave out --traces, or publish the traces of a selection: `trajkit select --limit`",
            )


def _prove(stores: Iterable[PublishedStore], folder: Path, on_progress: OnProgress) -> None:
    """Check that pulling these files gives the same content."""
    listed = list(stores)
    for n_done, published in enumerate(listed, start=1):
        goal = folder / f".proof-{published.split}"
        try:
            restore(folder, published, goal)
        except (DataError, StoreError) as error:
            raise StoreError(
                f"the files written for {published.split} differ from its store: {error.message}",
                hint="this is a bug in trajkit: please report it; nothing was published",
            ) from error
        finally:
            shutil.rmtree(goal, ignore_errors=True)
        on_progress("reading back", n_done, len(listed))


def _conversations(splits: Mapping[str, Store], folder: Path) -> tuple[SplitRows, ...]:
    work = folder / ".work"
    work.mkdir()
    try:
        made = make_rows(splits, work)
        fields = message_fields(made)
        return tuple(write_conversations(rows, fields, folder) for rows in made)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _traces(splits: Mapping[str, Store], folder: Path) -> Iterable[Shard]:
    for split, store in splits.items():
        goal = folder / TRACES / split
        goal.parent.mkdir(parents=True, exist_ok=True)
        convert(Dataset(store), goal, to="sts", include_eval=True)
        yield from (Shard(path, 1) for path in sorted(goal.iterdir()))


def _files(folder: Path, shards: Iterable[Shard]) -> Iterable[PublishedFile]:
    for shard in sorted(shards, key=lambda shard: shard.path):
        yield PublishedFile(
            path=shard.path.relative_to(folder).as_posix(),
            sha256=sha256_file(shard.path),
            n_bytes=shard.path.stat().st_size,
            n_rows=shard.n_rows,
        )


def _configurations(record: Record, rows: Iterable[SplitRows], has_traces: bool) -> dict[str, dict[str, str]]:
    found = {SFT: {each.split: f"{SFT}/{each.split}-*.parquet" for each in rows if each.n_rows}}
    for table in ("episodes", "steps", "feedback"):
        found[table] = {
            store.split: f"{table}/{store.split}-*.parquet" for store in record.stores if table in store.files
        }
    if has_traces:
        found[TRACES] = {store.split: f"{TRACES}/{store.split}/*.jsonl" for store in record.stores}
    return {name: patterns for name, patterns in found.items() if patterns}
