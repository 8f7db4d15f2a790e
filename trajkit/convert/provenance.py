"""Where each row of a training file is from: a file beside it, since a service would refuse the row for it.

One row per step that was looked at: its ids, its weight, the row that learns it, or why none does. The steps
of a row are in the order of the answers that are learned in it. What was done is in the file's metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit.store.engine import connect, interruptible, scan

METADATA_KEY = b"trajkit.conversion"
"""Key of the file's metadata under which a JSON object says what was done."""

_TYPES: dict[str, pa.DataType] = {
    "row": pa.int64(),
    "episode_id": pa.string(),
    "step_index": pa.int64(),
    "inference_id": pa.string(),
    "weight": pa.float64(),
    "reason": pa.string(),
}
SCHEMA = pa.schema(_TYPES)
"""Columns of the file: `row` counts from 0 and is null where `reason` says why the step is in none."""

_SPOOLED = pa.schema([*(SCHEMA.field(i) for i in range(1, len(SCHEMA))), pa.field("is_line", pa.bool_())])
_ROWS_PER_GROUP = 65_536


def provenance_path(goal: Path) -> Path:
    """The file beside a training file."""
    return goal.with_name(f"{goal.stem}.provenance.parquet")


class Provenance:
    """Takes what is known of steps as they come; use `finish` or `close`.

    Args:
        path: A file for it to wait in.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = pq.ParquetWriter(path, _SPOOLED, compression="zstd")

    def add(self, steps: pa.Table) -> None:
        """Append steps, with the columns of `SCHEMA` but `row`, and `is_line`: a row ends with the step."""
        self._writer.write_table(steps.select(_SPOOLED.names).cast(_SPOOLED))

    def finish(self, goal: Path, facts: dict[str, Any]) -> None:
        """Leave the rows in `goal`, by episode id and step, with the number of the row of each step."""
        self._writer.close()
        schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps(facts).encode()})
        n_before = 0
        with (
            connect() as connection,
            interruptible(connection),
            pq.ParquetWriter(goal, schema, compression="zstd") as writer,
        ):
            names = ", ".join(_SPOOLED.names)
            reader = connection.sql(
                f"SELECT {names} FROM {scan([self._path])} ORDER BY episode_id, step_index"
            ).to_arrow_reader(_ROWS_PER_GROUP)
            for batch in reader:
                is_line = batch.column("is_line").cast(pa.int64())
                n_lines = pc.add(pc.cumulative_sum(is_line), n_before)
                rows = pc.if_else(batch.column("reason").is_null(), pc.subtract(n_lines, is_line), None)
                n_before = n_lines[-1].as_py()
                table = pa.table({"row": rows, **_columns(batch)}, schema=SCHEMA)
                writer.write_table(table.replace_schema_metadata(schema.metadata))
        self._path.unlink()

    def close(self) -> None:
        """Remove what is left."""
        self._writer.close()
        self._path.unlink(missing_ok=True)


def _columns(batch: pa.RecordBatch) -> dict[str, Any]:
    return {field.name: batch.column(field.name) for field in SCHEMA if field.name != "row"}


def is_ours(path: Path) -> bool:
    """Whether a file is the provenance of some training file: left behind by one that is gone, it may go."""
    try:
        return METADATA_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def read_facts(path: Path) -> dict[str, Any]:
    """What was done, from the file beside a training file."""
    metadata = pq.read_schema(path).metadata or {}
    facts: dict[str, Any] = json.loads(metadata[METADATA_KEY])
    return facts
