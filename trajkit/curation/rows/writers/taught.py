"""Read the steps of a store chunk by chunk, and write their lines."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit.curation.rows.conversion import Progress
from trajkit.curation.rows.provenance import SPOOLED
from trajkit.curation.rows.spool import Spool
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.tally import Tally
from trajkit.curation.rows.writers.lines import Lines
from trajkit.formats.base import PlainText

_RAW = (
    *("episode_id", "step_index", "loss_weight", "reason"),
    *("n_prompt_kept", "messages", "completion", "tools"),
)


def teach(
    steps: Steps,
    lines: Lines,
    plain: PlainText | None,
    spool: Spool,
    origins: pq.ParquetWriter,
    tally: Tally,
    progress: Progress | None,
) -> None:
    """Write the lines of all steps.

    Args:
        steps: The steps.
        lines: Writes the lines that are not plain text.
        plain: How the format writes rows of plain text; None if Python writes all.
        spool: Collects the lines.
        origins: Collects the origin of the steps, in the columns of `SPOOLED`.
        tally: Counts steps and rows.
        progress: Gets the steps done, and how many there are.
    """
    tally.is_merged = lines.merges
    n_steps, n_done = steps.n_steps, 0

    def take(table: pa.Table) -> None:
        spool.add(table)
        origins.write_table(table.select(SPOOLED.names).cast(SPOOLED))

    with ThreadPoolExecutor(1) as writer:  # one table is written while the next is made
        pending: Future[None] | None = None
        for given in steps.tables(plain, merges=lines.merges):
            table = _completed(given, lines, tally)
            _count(table, tally)
            if pending is not None:
                pending.result()
            pending = writer.submit(take, table)
            n_done += table.num_rows
            if progress is not None:
                progress(n_done, n_steps)
        if pending is not None:
            pending.result()


def _completed(table: pa.Table, lines: Lines, tally: Tally) -> pa.Table:
    """Add the lines that Python writes, and the columns of the provenance."""
    columns: dict[str, Any] = {name: table.column(name) for name in ("reason", "line", "n_characters")}
    places: list[Any] = pc.indices_nonzero(table.column("is_raw")).to_pylist()
    if places:
        rows = table.select(_RAW)
        rows = rows if len(places) == table.num_rows else rows.take(places)
        episodes = itertools.groupby(rows.to_pylist(), key=lambda row: row["episode_id"])
        found = [outcome for _, episode in episodes for outcome in lines.of(list(episode))]
        made: dict[str, list[Any]] = {
            "reason": [each.reason for each in found],
            "line": [None if each.line is None else each.line + "\n" for each in found],
            "n_characters": [each.n_characters for each in found],
        }
        is_raw = table.column("is_raw").combine_chunks()
        columns = {name: _replaced(columns[name], is_raw, values) for name, values in made.items()}
        counts = [each.n_tokens for each in found if each.n_tokens is not None and each.line is not None]
        if counts:
            tally.n_tokens = (tally.n_tokens or 0) + sum(counts)
            tally.n_longest_tokens = max(tally.n_longest_tokens, *counts)
    return pa.table(
        {
            # some parts have large strings here, others do not
            "episode_id": table.column("episode_id").cast(pa.string()),
            "step_index": table.column("step_index"),
            "inference_id": table.column("inference_id").cast(pa.string()),
            "weight": table.column("loss_weight"),
            **columns,
            "is_line": pc.is_valid(columns["line"]),
        }
    )


def _replaced(column: pa.ChunkedArray[Any], is_other: pa.Array[Any], values: list[Any]) -> pa.Array[Any]:
    """Return the column with new values where `is_other`."""
    made: pa.Array[Any] = pa.array(values, column.type)
    if len(made) == len(column):
        return made
    replaced: pa.Array[Any] = pc.replace_with_mask(column.combine_chunks(), is_other, made)
    return replaced


def _count(table: pa.Table, tally: Tally) -> None:
    reason = table.column("reason")
    reasons: list[Any] = reason.drop_null().to_pylist()
    tally.left.update(reasons)
    tally.n_learned += reason.null_count
    if tally.is_merged:
        n = table.column("n_characters")
        tally.n_characters += pc.sum(n.filter(table.column("is_line"))).as_py() or 0
        tally.n_characters_by_step += pc.sum(n.filter(reason.is_null())).as_py() or 0
