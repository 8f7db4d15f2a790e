"""Read the metrics and tools of a TensorZero configuration, and of its snapshots in the database."""

from __future__ import annotations

import functools
import json
import threading
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from trajkit.schema.base import JsonObject

_CONFIGURED_TOOL = pa.schema([("snapshot_hash", pa.string()), ("key", pa.string()), ("tool", pa.string())])


class ConfiguredMetric(NamedTuple):
    """A metric as a configuration declares it."""

    kind: str
    """`float` or `boolean`."""
    level: str | None
    """`episode` or `inference`; None when no configuration has it."""
    optimize: str | None
    """`max` or `min`; None when no configuration has it."""


def metrics_of(text: str) -> dict[str, ConfiguredMetric]:
    """The metrics of a configuration (TOML); none when it cannot be read.

    A snapshot that is not TOML does not fail an export: the data also show a metric's level.
    """
    return {
        name: ConfiguredMetric(metric.get("type", "float"), metric.get("level"), metric.get("optimize"))
        for name, metric in _tables(text, "metrics")
    }


def tools_of(text: str) -> dict[str, JsonObject]:
    """The tools of a configuration (TOML) by the name that functions use; none when it cannot be read.

    They have the fields that TensorZero lists with an inference: `description`, `parameters`, `name` (for the
    model, perhaps another one) and `strict`. One whose parameters are not in the configuration is left out.
    """
    found = {}
    for key, tool in _tables(text, "tools"):
        parameters = tool.get("parameters")
        if isinstance(parameters, dict) and isinstance(data := parameters.get("__data"), str):
            try:
                schema = json.loads(data)
            except json.JSONDecodeError:
                continue
            found[key] = {
                "description": tool.get("description", ""),
                "parameters": schema,
                "name": tool.get("name", key),
                "strict": tool.get("strict", False),
            }
    return found


def _tables(text: str, name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The tables inside a table of a configuration."""
    declared = _parsed(text).get(name, {})
    return [(key, value) for key, value in declared.items() if isinstance(value, dict)]


@functools.lru_cache(maxsize=16)
def _parsed(text: str) -> Mapping[str, Any]:
    """Parse a configuration once for all its readers: it takes milliseconds."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


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
        """Add to `configured_tool` the tools of the configurations of `spooled_inference`'s unusual rows."""
        rows = connection.execute(
            "SELECT DISTINCT snapshot_hash FROM spooled_inference WHERE snapshot_hash IS NOT NULL"
            " AND has_unusual_tools(tool_params, dynamic_tools, allowed_tools)"
        ).fetchall()
        with self._lock:
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
