"""Record where each row of a training file is from, in a file beside it: services refuse unknown fields.

The file has one row per step that was read: its ids, its weight, the row that learns it, or the reason why
none does. The steps of a training row are in the order of its learned answers. The file's metadata has the
counts and options of the conversion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trajkit._core.address import readable
from trajkit.curation.rows.bridge import flags_in, numbers_of
from trajkit.store.engine import connect, interruptible, scan

METADATA_KEY = b"trajkit.conversion"
"""Key of the JSON object with counts and options in the file's metadata."""

_TYPES: dict[str, pa.DataType] = {
    "row": pa.int64(),
    "episode_id": pa.string(),
    "step_index": pa.int64(),
    "inference_id": pa.string(),
    "weight": pa.float64(),
    "reason": pa.string(),
}
SCHEMA = pa.schema(_TYPES)
"""Columns of the file. `row` counts from 0 and is null if the step is in no row; `reason` then says why."""

SPOOLED = pa.schema([*(SCHEMA.field(i) for i in range(1, len(SCHEMA))), pa.field("is_line", pa.bool_())])
"""Columns of the temporary files: `is_line` says whether a row ends at the step."""
_ROWS_PER_GROUP = 65_536
_SORTING = "100MB"
"""Memory limit for sorting the steps; DuckDB spills the rest to disk."""


def provenance_path(goal: Path) -> Path:
    """Return the path of the provenance of a training file."""
    return goal.with_name(f"{goal.stem}.provenance.parquet")


class Spooled(NamedTuple):
    """A temporary file with the origin of steps, in the columns of `SPOOLED`."""

    path: Path
    is_in_order: bool
    """Whether the steps are in the order of episode id and step."""


def write_provenance(spooled: Iterable[Spooled], goal: Path, facts: dict[str, Any]) -> None:
    """Write the rows into `goal`, by episode id and step, with the number of the training row of each.

    Args:
        spooled: Closed files whose episodes follow each other.
        goal: The file to write.
        facts: Counts and options of the conversion.
    """
    schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps(facts).encode()})
    n_before = 0
    with pq.ParquetWriter(goal, schema, compression="zstd") as writer:
        for each in spooled:
            for table in _sorted(each):
                is_line = flags_in(table.column("is_line").combine_chunks())
                is_learned = flags_in(table.column("reason").combine_chunks().is_null())
                n_lines = np.cumsum(is_line) + n_before
                n_before = int(n_lines[-1])
                rows = numbers_of(n_lines - is_line, is_learned)
                columns = [table.column(name) for name in SCHEMA.names[1:]]
                writer.write_table(pa.table([rows, *columns], schema=schema))


def _sorted(spooled: Spooled) -> Iterator[pa.Table]:
    """Yield the steps in order, one row group at a time."""
    path = spooled.path
    if spooled.is_in_order:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_PER_GROUP):
                yield pa.Table.from_batches([batch])
        return
    sql = f"SELECT {', '.join(SPOOLED.names)} FROM {scan([path])} ORDER BY episode_id, step_index"
    spill = path.with_name(f"{path.name}-sorting")
    with connect(memory_limit=_SORTING, spill=spill) as connection, interruptible(connection):
        for batch in connection.sql(sql).to_arrow_reader(_ROWS_PER_GROUP):
            yield pa.Table.from_batches([batch])


def is_ours(path: Path) -> bool:
    """Whether a file is a provenance: one that was left behind without its training file may be replaced."""
    try:
        return path.exists() and METADATA_KEY in (pq.read_schema(readable(path)).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def read_facts(path: Path) -> dict[str, Any]:
    """Read the counts and options from a provenance."""
    metadata = pq.read_schema(readable(path)).metadata or {}
    facts: dict[str, Any] = json.loads(metadata[METADATA_KEY])
    return facts
