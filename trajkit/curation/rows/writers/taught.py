"""Read the steps of a store chunk by chunk, and write their lines."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trajkit.curation.rows.conversion import Saving
from trajkit.curation.rows.provenance import Provenance
from trajkit.curation.rows.spool import Spool
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.writers.lines import Lines, Outcome
from trajkit.formats.base import PlainText

_RAW = (
    *("episode_id", "step_index", "loss_weight", "reason"),
    *("n_prompt_kept", "messages", "completion", "tools"),
)


@dataclass
class Taught:
    """Counts of the steps and rows."""

    left: Counter[str] = field(default_factory=Counter)
    """Steps that are in no row, by reason."""
    n_learned: int = 0
    """Steps that are in a row."""
    n_tokens: int | None = None
    """Tokens of all rows; None if they were not counted."""
    n_longest_tokens: int = 0
    """Tokens of the longest row; 0 if they were not counted."""
    n_characters: int = 0
    """Size of the rows' messages in the store."""
    n_characters_by_step: int = 0
    """Size of the messages if each step had a row of its own."""
    is_merged: bool = False
    """Whether rows have several answers."""

    def add(self, other: Taught) -> None:
        """Add the counts of other episodes."""
        self.left.update(other.left)
        self.n_learned += other.n_learned
        if other.n_tokens is not None:
            self.n_tokens = (self.n_tokens or 0) + other.n_tokens
        self.n_longest_tokens = max(self.n_longest_tokens, other.n_longest_tokens)
        self.n_characters += other.n_characters
        self.n_characters_by_step += other.n_characters_by_step
        self.is_merged |= other.is_merged

    @property
    def saving(self) -> Saving | None:
        """The size saved by merging; None if no steps are merged."""
        if not self.is_merged:
            return None
        return Saving(measure="characters", n=self.n_characters, n_by_step=self.n_characters_by_step)


def teach(
    steps: Steps,
    lines: Lines,
    plain: PlainText | None,
    spool: Spool,
    provenance: Provenance,
    *,
    merges: bool,
    progress: Callable[[int, int], None] | None = None,
) -> Taught:
    """Write the lines of all steps.

    Args:
        steps: The steps.
        lines: Writes the lines that are not plain text.
        plain: How the format writes rows of plain text; None if Python writes all.
        spool: Collects the lines.
        provenance: Collects the origin of the steps.
        merges: Whether a row has all learned answers of a conversation.
        progress: Gets the steps done, and how many there are.
    """
    taught = Taught(is_merged=merges)
    n_steps, n_done = steps.n_steps, 0

    def take(table: pa.Table) -> None:
        spool.add(table)
        provenance.add(table)

    with ThreadPoolExecutor(1) as writer:  # one table is written while the next is made
        pending: Future[None] | None = None
        for given in steps.tables(plain, merges=merges):
            table = _completed(given, lines, taught)
            _count(table, taught)
            if pending is not None:
                pending.result()
            pending = writer.submit(take, table)
            n_done += table.num_rows
            if progress is not None:
                progress(n_done, n_steps)
        if pending is not None:
            pending.result()
    return taught


def _completed(table: pa.Table, lines: Lines, taught: Taught) -> pa.Table:
    """Add the lines that Python writes, and the columns of the provenance."""
    columns: dict[str, Any] = {name: table.column(name) for name in ("reason", "line", "n_characters")}
    places: list[Any] = pc.indices_nonzero(table.column("is_raw")).to_pylist()
    if places:
        rows = table.select(_RAW)
        rows = rows if len(places) == table.num_rows else rows.take(places)
        found = _outcomes(rows.to_pylist(), lines)
        made: dict[str, list[Any]] = {
            "reason": [each.reason for each in found],
            "line": [None if each.line is None else each.line + "\n" for each in found],
            "n_characters": [each.n_characters for each in found],
        }
        is_raw = table.column("is_raw").combine_chunks()
        columns = {name: _replaced(columns[name], is_raw, values) for name, values in made.items()}
        counts = [each.n_tokens for each in found if each.n_tokens is not None and each.line is not None]
        if counts:
            taught.n_tokens = (taught.n_tokens or 0) + sum(counts)
            taught.n_longest_tokens = max(taught.n_longest_tokens, *counts)
    return pa.table(
        {
            # some parts have large strings here, other parts have not
            "episode_id": table.column("episode_id").cast(pa.string()),
            "step_index": table.column("step_index"),
            "inference_id": table.column("inference_id").cast(pa.string()),
            "weight": table.column("loss_weight"),
            **columns,
            "is_line": pc.is_valid(columns["line"]),
        }
    )


def _outcomes(rows: list[dict[str, Any]], lines: Lines) -> list[Outcome]:
    found: list[Outcome] = []
    for _, episode in itertools.groupby(rows, key=lambda row: row["episode_id"]):
        found.extend(lines.of(list(episode)))
    return found


def _replaced(column: pa.ChunkedArray[Any], is_other: pa.Array[Any], values: list[Any]) -> pa.Array[Any]:
    """Return the column with new values where `is_other`."""
    made: pa.Array[Any] = pa.array(values, column.type)
    if len(made) == len(column):
        return made
    replaced: pa.Array[Any] = pc.replace_with_mask(column.combine_chunks(), is_other, made)
    return replaced


def _count(table: pa.Table, taught: Taught) -> None:
    reason = table.column("reason")
    reasons: list[Any] = reason.drop_null().to_pylist()
    taught.left.update(reasons)
    is_learned = reason.is_null()
    taught.n_learned += reason.null_count
    if taught.is_merged:
        n = table.column("n_characters")
        taught.n_characters += pc.sum(n.filter(table.column("is_line"))).as_py() or 0
        taught.n_characters_by_step += pc.sum(n.filter(is_learned)).as_py() or 0
