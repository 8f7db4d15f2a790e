"""Read the tools of inferences from the configuration snapshots in the database."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa

from trajkit.sources.tensorzero.export.config import tools_of

_CONFIGURED_TOOL = pa.schema([("snapshot_hash", pa.string()), ("key", pa.string()), ("tool", pa.string())])


class Snapshots:
    """Reads the configurations once, when the first of them is needed; several threads may need some.

    Args:
        read: Streams them (`tables.SNAPSHOTS`).
    """

    def __init__(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._read = read
        self._texts: dict[str, bytes] | None = None
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def make_table(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make `configured_tool`, empty."""
        self._known.clear()
        connection.execute(
            "CREATE OR REPLACE TABLE configured_tool (snapshot_hash VARCHAR, key VARCHAR, tool JSON)"
        )

    def add_tools(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Add to `configured_tool` the tools of the configurations of `spooled_inference`'s unusual rows.

        Args:
            connection: Where the tables are.
        """
        with self._lock:
            self._add_tools(connection)

    def _add_tools(self, connection: duckdb.DuckDBPyConnection) -> None:
        rows = connection.execute(
            "SELECT DISTINCT snapshot_hash FROM spooled_inference WHERE snapshot_hash IS NOT NULL"
            " AND has_unusual_tools(tool_params, dynamic_tools, allowed_tools)"
        ).fetchall()
        new = sorted({row[0] for row in rows} - self._known)
        self._known.update(new)
        tools = [
            {"snapshot_hash": snapshot_hash, "key": key, "tool": json.dumps(tool, ensure_ascii=False)}
            for snapshot_hash in new
            for key, tool in tools_of(self._text(snapshot_hash)).items()
        ]
        if tools:
            connection.register("new_tool", pa.Table.from_pylist(tools, _CONFIGURED_TOOL))
            connection.execute("INSERT INTO configured_tool SELECT * FROM new_tool")
            connection.unregister("new_tool")

    def _text(self, snapshot_hash: str) -> str:
        """A configuration; empty when the database does not have it."""
        if self._texts is None:
            # a configuration is some 100 kB, most of it the same in each
            self._texts = {
                row["snapshot_hash"]: zlib.compress(row["config"].encode())
                for batch in self._read()
                for row in batch.select(["snapshot_hash", "config"]).to_pylist()
            }
        found = self._texts.get(snapshot_hash)
        return "" if found is None else zlib.decompress(found).decode()
