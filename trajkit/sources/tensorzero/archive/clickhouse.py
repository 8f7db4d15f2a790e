"""TensorZero's tables in ClickHouse as an archive takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.archive.checksum import CLICKHOUSE, row_number
from trajkit.sources.tensorzero.archive.layout import MS_PER_DAY, WHOLE, Kind, Table
from trajkit.sources.tensorzero.archive.manifest import Seen
from trajkit.sources.tensorzero.archive.origin import KEYS
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection


class _Stored(NamedTuple):
    """Where ClickHouse has a table of the archive."""

    name: str
    renamed: Mapping[str, str] = {}
    """Columns that have another name there."""
    integers: tuple[str, ...] = ()
    """Ids that are kept as whole numbers of 128 bits."""


_STORED = {
    "chat_inference": _Stored("ChatInference"),
    "json_inference": _Stored("JsonInference"),
    "model_inference": _Stored("ModelInference"),
    "float_feedback": _Stored("FloatMetricFeedback"),
    "boolean_feedback": _Stored("BooleanMetricFeedback"),
    "comment_feedback": _Stored("CommentFeedback"),
    "demonstration_feedback": _Stored("DemonstrationFeedback"),
    "config_snapshot": _Stored("ConfigSnapshot", {"templates": "extra_templates"}),
    "evaluation_run": _Stored("DynamicEvaluationRun", {"run_id": "run_id_uint"}, ("run_id",)),
    "evaluation_episode": _Stored(
        "DynamicEvaluationRunEpisode",
        {"episode_id": "episode_id_uint", "task_name": "datapoint_name"},
        ("episode_id",),
    ),
    "chat_datapoint": _Stored("ChatInferenceDatapoint"),
    "json_datapoint": _Stored("JsonInferenceDatapoint"),
}

_TEXTUAL = (Kind.NAME, Kind.TEXT)


class ClickHouseOrigin:
    """A TensorZero database in ClickHouse, to be archived.

    Args:
        url: `http://user:password@host:port/database`.
        access: What its queries may take of the server.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: clickhouse-connect is not installed.
    """

    def __init__(self, url: str, access: Access = Access()) -> None:  # noqa: B008 -- frozen
        self._connection = Connection(url, access)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def describe(self) -> JsonObject:
        """Where this is, without credentials."""
        found: JsonObject = {"kind": "tensorzero-clickhouse", "url": self._connection.address.shown}
        if self._connection.has("TensorZeroMigration"):
            level = self._connection.query("SELECT max(migration_id) FROM TensorZeroMigration")
            found["schema_level"] = int(level[0][0])
        if self._connection.has("DeploymentID"):
            for (deployment_id,) in self._connection.query("SELECT deployment_id FROM DeploymentID FINAL"):
                found["deployment_id"] = str(deployment_id)
        return found

    def keys_seen(self, table: Table) -> Mapping[int, Seen]:
        """Per day the rows, and the sum over their keys; over all that they hold in a table without days."""
        if not table.is_dated:
            return self.content_seen(table)
        return self._seen(table, CLICKHOUSE.number.format(f"toString({table.key})"))

    def content_seen(self, table: Table) -> Mapping[int, Seen]:
        """Per day the rows, and the sum over all that they hold."""
        return self._seen(table, row_number(table, CLICKHOUSE, self._columns(table)))

    def _seen(self, table: Table, number: str) -> Mapping[int, Seen]:
        if not self._is_there(table):
            return {}
        rows = self._connection.query(
            f"SELECT {_day(table)} AS day, count(), {CLICKHOUSE.total.format(number)}"
            f" FROM {self._from(table)} GROUP BY day ORDER BY day"
        )
        return {int(day): Seen(int(n_rows), int(total)) for day, n_rows, total in rows}

    def keys(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream the days, keys and numbers of the rows of these days."""
        columns = self._columns(table)
        key, number = _spelled(table.key, Kind.ID, columns), row_number(table, CLICKHOUSE, columns)
        return self._stream(table, f"{_day(table)}, {key}, {number}", _in_days(table, days), KEYS)

    def rows(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream the rows of these days."""
        return self._stream(table, self._selected(table), _in_days(table, days), table.travelling)

    def rows_of(self, table: Table, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the rows that have these keys, in a table that is cut into days."""
        return self._stream(
            table,
            self._selected(table),
            f"{table.key} IN (SELECT toUUID(episode_id) FROM chosen)",
            table.travelling,
            chosen=pa.table({"episode_id": pa.array(keys, pa.string())}),
        )

    def n_bytes(self, table: Table) -> int:
        """Roughly how many bytes of text the table holds."""
        rows = self._connection.query(
            "SELECT sum(data_uncompressed_bytes) FROM system.columns"
            " WHERE database = currentDatabase() AND table = {table:String}",
            {"table": _STORED[table.name].name},
        )
        return int(rows[0][0] or 0)

    def _stream(
        self,
        table: Table,
        columns: str,
        where: str,
        schema: pa.Schema,
        *,
        chosen: pa.Table | None = None,
    ) -> Iterator[pa.RecordBatch]:
        if not self._is_there(table):
            return iter(())
        return self._connection.stream(
            f"SELECT {columns} FROM {self._from(table)} WHERE {where}", schema, chosen=chosen
        )

    def _is_there(self, table: Table) -> bool:
        """Whether the database has the table, as we know it."""
        stored = _STORED[table.name]
        return self._connection.has(stored.name, stored.renamed.get(table.key, table.key))

    def _from(self, table: Table) -> str:
        """Only tables whose rows are replaced by newer ones keep more than they mean."""
        return _STORED[table.name].name + ("" if table.is_dated else " FINAL")

    def _columns(self, table: Table) -> dict[str, str]:
        """What there is of the table's columns, as text where the archive has a text of something else."""
        stored = _STORED[table.name]
        found = {}
        for column in table.columns:
            name = stored.renamed.get(column.name, column.name)
            if not self._connection.has(stored.name, name):
                continue
            if column.name in stored.integers:
                name = _uuid(name)
            elif column.kind == Kind.HASH:
                name = f"lower(leftPad(hex({name}), 64, '0'))"
            elif column.kind in _TEXTUAL:
                name = f"toString({name})"  # of an enumeration, too
            elif column.kind == Kind.TIME:
                name = f"toDateTime64({name}, 6, 'UTC')"
            found[column.name] = name
        return found

    def _selected(self, table: Table) -> str:
        columns = self._columns(table)
        selected = [
            f"{_spelled(column.name, column.kind, columns)} AS {column.name}_" for column in table.columns
        ]
        return ", ".join([*selected, f"{_day(table)} AS day_"])


def _spelled(name: str, kind: Kind, columns: Mapping[str, str]) -> str:
    if name not in columns:
        return "NULL"
    return f"toString({columns[name]})" if kind == Kind.ID else columns[name]


def _uuid(name: str) -> str:
    """A whole number of 128 bits as the text of a UUID."""
    digits = f"lower(leftPad(hex({name}), 32, '0'))"
    pieces = [f"substring({digits}, {start}, {length})" for start, length in _UUID_PIECES]
    return "concat(" + ", '-', ".join(pieces) + ")"


_UUID_PIECES = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))


def _day(table: Table) -> str:
    if not table.is_dated:
        return f"toInt32({WHOLE})"
    return f"toInt32(intDiv(bitShiftRight(toUInt128({table.key}), 80), {MS_PER_DAY}))"


def _in_days(table: Table, days: Sequence[int]) -> str:
    return f"{_day(table)} IN ({', '.join(map(str, days))})" if table.is_dated else "true"
