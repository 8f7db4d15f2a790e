"""Read the steps of one part of a store from Parquet and write their lines, without a query."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.curation.rows.bridge import (
    Numbers,
    bounds_in,
    flags_in,
    flags_of,
    numbers_of,
    reals_in,
    texts_of,
)
from trajkit.curation.rows.writers.plain_line import Facts, PlainLines
from trajkit.formats.base import PlainText

_SAID = ("messages", "completion")
RAW = ("n_prompt_kept", *_SAID, "tools")
"""The columns of a step that make its row."""
READ = ("episode_id", "step_index", "inference_id", "loss_weight", "mask_reason", *RAW)
"""The columns that are read."""

# larger batches take new memory each time, which costs more than the work in it
_BYTES_PER_BATCH = 5_000_000
_MOST_STEPS = 2048
_COST_OF_CHAINS = 8
"""Factor from the stored size of steps with growing prompts to the size of their rows."""
_THREADS = max(1, min(4, os.cpu_count() or 1))
_AT_ONCE = _THREADS + 1  # one batch waits for the first free thread
_NULL = texts_of(["null"])
_NO_TOOLS = texts_of(["[]", "null"])
_MOST_BYTES = 4  # longest of _NULL and _NO_TOOLS
_REASONS = texts_of(["negative weight", "weight 0", "no answer", "prompt unknown"])
_HANDED_OVER = ("episode_id", "step_index", "inference_id", "loss_weight", *RAW)


class PartSteps:
    """The chosen steps of a part.

    Args:
        path: The file.
        chosen: The ids of the chosen episodes; None for all.
    """

    def __init__(self, path: Path, chosen: pa.Array[Any] | None) -> None:
        self._path = path
        self._is_chosen: Numbers | None = None
        with pq.ParquetFile(readable(path)) as file:
            n_kept = file.read(["n_prompt_kept"]).column(0)
            if chosen is not None:
                ids = file.read(["episode_id"]).column(0).cast(chosen.type)
                is_chosen: Any = pc.is_in(ids, value_set=chosen)
                n_kept = n_kept.filter(is_chosen)
                self._is_chosen = np.concatenate([flags_in(chunk) for chunk in is_chosen.chunks])
        self._is_chained = (pc.max(n_kept).as_py() or 0) > 0
        """Whether some prompt keeps messages of the previous step."""

    def tables(self, plain: PlainText | None, *, merges: bool) -> Iterator[pa.Table]:
        """Yield the steps with the columns of `Steps.tables`, a bounded number at a time.

        Args:
            plain: How the format writes rows of plain text; None if Python writes all.
            merges: Whether a row has all learned answers of a conversation, or one.
        """
        lines = [None if plain is None else PlainLines(plain, merges=merges) for _ in range(_AT_ONCE)]
        pending: deque[Future[pa.Table]] = deque()
        with (
            pq.ParquetFile(readable(self._path), memory_map=True) as file,
            ThreadPoolExecutor(_THREADS) as makers,
        ):
            for number, batch in enumerate(self._batches(file, merges=merges)):
                if len(pending) == _AT_ONCE:
                    yield pending.popleft().result()
                # these `lines` are free again: tables are taken in the order of their batches
                pending.append(makers.submit(_with_lines, batch, lines[number % _AT_ONCE], merges=merges))
            while pending:
                yield pending.popleft().result()

    def _batches(self, file: pq.ParquetFile, *, merges: bool) -> Iterator[pa.RecordBatch]:
        """Yield the chosen steps as they are stored; of whole episodes where steps depend on each other."""
        n_bytes = bytes_per_step(file) * (_COST_OF_CHAINS if self._is_chained and not merges else 1)
        n_rows = max(1, min(_MOST_STEPS, int(_BYTES_PER_BATCH / max(1.0, n_bytes))))
        groups, is_mine = self._groups(file)
        batches = file.iter_batches(n_rows, row_groups=groups, columns=list(READ), use_threads=False)
        chosen = _chosen(_ahead(batches), is_mine)
        return _whole(chosen) if merges or self._is_chained else chosen

    def _groups(self, file: pq.ParquetFile) -> tuple[list[int], Numbers | None]:
        """Return the row groups with chosen steps, and a mask of their chosen rows; None for all."""
        everything = list(range(file.num_row_groups))
        if self._is_chosen is None:
            return everything, None
        sizes = [file.metadata.row_group(group).num_rows for group in everything]
        masks = np.split(self._is_chosen, np.cumsum(sizes)[:-1])
        groups = [group for group, mask in zip(everything, masks, strict=True) if mask.any()]
        return groups, np.concatenate([masks[group] for group in groups] or [self._is_chosen])


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; another thread reads the next one meanwhile."""
    with ThreadPoolExecutor(1) as reader:
        pending = reader.submit(next, batches, None)
        while (batch := pending.result()) is not None:
            pending = reader.submit(next, batches, None)
            yield batch


def _chosen(batches: Iterator[pa.RecordBatch], is_mine: Numbers | None) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows; None chooses all."""
    n_done = 0
    for batch in batches:
        mask = None if is_mine is None else is_mine[n_done : n_done + batch.num_rows]
        n_done += batch.num_rows
        mine = batch if mask is None or mask.all() else batch.filter(flags_of(mask))
        if mine.num_rows:
            yield mine


def _whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of whole episodes."""
    rest: list[pa.RecordBatch] = []
    for batch in batches:
        last = int(np.flatnonzero(_is_first(batch.column("episode_id")))[-1])
        begins_another = bool(rest) and rest[-1].column("episode_id")[-1] != batch.column("episode_id")[0]
        if last or begins_another:
            yield _one([*rest, batch.slice(0, last)])
            rest = []
        rest.append(batch.slice(last))
    if rest:
        yield _one(rest)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _is_first(episode_ids: pa.Array[Any]) -> Numbers:
    """Whether each row is the first of its episode."""
    is_first = np.ones(len(episode_ids), bool)
    if len(episode_ids) > 1:
        is_first[1:] = flags_in(pc.not_equal(episode_ids[1:], episode_ids[:-1]))
    return is_first


def bytes_per_step(file: pq.ParquetFile, columns: Collection[str] = RAW) -> float:
    """Return the mean size of a step in some columns."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    n_bytes = sum(
        column.total_uncompressed_size
        for group in groups
        for column in (group.column(i) for i in range(group.num_columns))
        if column.path_in_schema.partition(".")[0] in columns
    )
    return n_bytes / max(1, sum(group.num_rows for group in groups))


def _with_lines(batch: pa.RecordBatch, lines: PlainLines | None, *, merges: bool) -> pa.Table:
    columns: dict[str, Any] = {name: batch.column(name) for name in _HANDED_OVER}
    for name in (*_SAID, "tools"):
        columns[name] = _text(columns[name])
    is_there = flags_in(columns["loss_weight"].is_valid())
    weight = reals_in(columns["loss_weight"])
    reason = _reasons(columns, weight, is_there, batch.column("mask_reason"))
    is_learned = flags_in(reason.is_null())
    is_first, n_kept = _is_first(columns["episode_id"]), reals_in(columns["n_prompt_kept"])
    is_joint = np.full(batch.num_rows, merges)
    if not merges and n_kept.any():
        firsts = np.flatnonzero(is_first)
        is_joint = (np.maximum.reduceat(n_kept, firsts) > 0)[np.cumsum(is_first) - 1]
    line: pa.Array[Any] = pa.nulls(batch.num_rows, pa.large_string())
    n_characters: pa.Array[Any] = pa.nulls(batch.num_rows, pa.int64())
    is_raw = is_joint | is_learned
    if lines is not None:
        facts = Facts(
            is_first=is_first,
            is_joint=is_joint,
            n_kept=n_kept,
            has_answer=~_is(columns["completion"], _NULL),
            is_learned=is_learned,
            is_simple=_is(columns["tools"], _NO_TOOLS) & (~is_learned | (is_there & (weight == 1))),
        )
        line, is_raw, starts = lines.of(columns["messages"], columns["completion"], facts)
        if merges:
            until = np.cumsum(sum(_n_characters(columns[name]) for name in _SAID))
            n_characters = numbers_of(until - np.concatenate(([0], until))[starts])
    return pa.table(
        {
            **columns,
            "reason": reason,
            "line": line,
            "is_raw": flags_of(is_raw),
            "n_characters": n_characters,
        }
    )


def _n_characters(column: pa.Array[Any]) -> Numbers:
    """Return the size of each JSON; 0 if there is none, or an empty list."""
    lengths: Any = pc.utf8_length(column)  # type: ignore[call-overload]  # the stubs want a narrower type
    n = reals_in(lengths)
    return np.where(flags_in(column.is_valid()) & (n > len("[]")), n, 0)


def _text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Cast JSON to text."""
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    return stored if stored.type == pa.string() else stored.cast(pa.string())


def _is(column: pa.Array[Any], values: pa.Array[Any]) -> Numbers:
    """Whether each text is null or one of some short values."""
    is_none: Numbers = flags_in(column.is_null())
    if (np.diff(bounds_in(column))[~is_none] <= _MOST_BYTES).any():
        is_none = is_none | flags_in(pc.is_in(column, value_set=values))
    return is_none


def _reasons(
    columns: dict[str, Any], weight: Numbers, is_there: Numbers, given: pa.Array[Any]
) -> pa.Array[Any]:
    """Return why each step is not learned; null if it is."""
    is_masked = is_there & (weight <= 0)
    has_no_answer, has_no_prompt = (_is(columns[name], _NULL) for name in ("completion", "messages"))
    is_known = is_masked | has_no_answer | has_no_prompt
    if not is_known.any():
        return pa.nulls(len(weight), pa.string())
    which = np.select([is_masked & (weight < 0), is_masked, has_no_answer], [0, 1, 2], 3)
    known_reasons = _REASONS.take(numbers_of(which, is_known))
    has_own = flags_of(is_masked & flags_in(given.is_valid()))
    reasons: pa.Array[Any] = pc.if_else(has_own, given.cast(pa.string()), known_reasons)
    return reasons
