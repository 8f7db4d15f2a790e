"""Read a database for its archive: its tables unchanged, as Arrow, and sums to compare them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.archive.checksum import CLICKHOUSE, POSTGRES, Sums, row_number
from trajkit.sources.tensorzero.archive.layout import DAY, MS_PER_DAY, WHOLE, Column, Kind, Table
from trajkit.sources.tensorzero.archive.manifest import Seen
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.dialect import uuid_of
from trajkit.sources.tensorzero.connect.database import connect
from trajkit.sources.tensorzero.connect.dialect import Dialect, columns
from trajkit.sources.tensorzero.connect.postgres.dialect import TEXT_OR_JSON
from trajkit.sources.tensorzero.connect.url import parse_url

_KEYS: dict[str, pa.DataType] = {"day": pa.int32(), "key": pa.string(), "number": pa.uint64()}
KEYS = pa.schema(_KEYS)
"""One row of a table in short: its day, its key, and the number that its content comes to (null where its
payload has expired)."""


class Origin(ABC):
    """A TensorZero database to be archived, read only. It must be closed.

    A row's day counts from 1970 by the time in its id; it is `WHOLE` in a table without days.
    Missing tables and columns are left out without an error.

    Args:
        url: `http://user:password@host:port/database` or `postgresql://user:password@host:port/database`.
        access: Limits of its queries on the server.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: Its driver is not installed.
    """

    sums: Sums
    deployment: str
    """The table with the database's own id."""

    def __init__(self, url: str, access: Access = Access()) -> None:  # noqa: B008 -- frozen
        self.dialect: Dialect = connect(url, access)

    def close(self) -> None:
        """Close the connection."""
        self.dialect.connection.close()

    def describe(self) -> JsonObject:
        """Return its address without credentials, and its `deployment_id` if it has one."""
        found: JsonObject = {
            name: value for name, value in self.dialect.describe().items() if value is not None
        }
        if self.dialect.connection.has(self.deployment.removeprefix("tensorzero.")):
            for (deployment_id,) in self.dialect.connection.query(
                f"SELECT CAST(deployment_id AS TEXT) FROM {self.deployment} LIMIT 1"
            ):
                found["deployment_id"] = str(deployment_id)
        return found

    def keys_seen(self, table: Table) -> Mapping[int, Seen]:
        """Return rows and sum for each day: over keys, or over all columns in a table without days."""
        if not table.is_dated:
            return self.content_seen(table)
        return self._seen(table, self.sums.number.format(self.dialect.text(table.key)))

    def content_seen(self, table: Table) -> Mapping[int, Seen]:
        """Return rows and the sum over all columns for each day, computed in the database."""
        return self._seen(table, self._number(table))

    def _seen(self, table: Table, number: str) -> Mapping[int, Seen]:
        if not self._is_there(table):
            return {}
        rows = self.dialect.connection.query(
            f"SELECT {self._day(table)} AS day_, count(*), {self.sums.total.format(number)}"
            f" FROM {self.dialect.wide(table.name)} GROUP BY day_ ORDER BY day_"
        )
        return {int(day): Seen(int(n_rows), int(total or 0)) for day, n_rows, total in rows}

    def keys(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream `KEYS` of these days."""
        key = self._columns(table).get(table.key, "NULL")
        if table.key != "hash":
            key = self.dialect.text(key)
        # as a text, because not every database has unsigned numbers
        schema = pa.schema([*list(KEYS)[:2], pa.field("number", pa.string())])
        selected = columns(schema, self._day(table), key, self.sums.unsigned.format(self._number(table)))
        for batch in self._stream(table, selected, self._in_days(table, days), schema):
            number = batch.column("number").cast(pa.uint64())
            yield pa.RecordBatch.from_arrays([*batch.columns[:2], number], schema=KEYS)

    def rows(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream the rows of these days (`Table.travelling`), in no order."""
        return self._rows(table, self._in_days(table, days))

    def rows_of(self, table: Table, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the rows with these keys, in a table with days (`Table.travelling`)."""
        chosen = tables.chosen(keys)
        return self._rows(table, self.dialect.in_chosen(table.key, chosen), chosen)

    @abstractmethod
    def n_bytes(self, table: Table) -> int:
        """Return the approximate bytes of text in the table; 0 when the database does not report it."""

    # -- what a database spells in its own way ---------------------------------------------------------------

    @abstractmethod
    def _spelled(self, column: Column, name: str) -> str:
        """Return a column as the checksum takes it; text if the archive has another type as text."""

    @abstractmethod
    def _selected(self, table: Table) -> tuple[list[str], pa.Schema]:
        """Return the selected columns and their types, without the day."""

    def _number(self, table: Table) -> str:
        """Return SQL for the number of a row."""
        return row_number(table, self.sums, self._columns(table))

    def _in_days(self, table: Table, days: Sequence[int]) -> str:
        """Return the condition for rows of these days, which follow the order of the ids."""
        if not table.is_dated:
            return "true"
        before = self.dialect.before
        spans = (
            f"NOT {before(day * MS_PER_DAY, table.key)} AND {before((day + 1) * MS_PER_DAY, table.key)}"
            for day in days
        )
        return f"({' OR '.join(spans)})"

    def _arrived(self, batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
        """Return a batch in the types of streamed rows."""
        return batch

    # -- plumbing --------------------------------------------------------------------------------------------

    def _rows(self, table: Table, where: str, chosen: pa.Table | None = None) -> Iterator[pa.RecordBatch]:
        selected, schema = self._selected(table)
        schema = schema.append(pa.field(DAY, pa.int32()))
        stream = self._stream(table, columns(schema, *selected, self._day(table)), where, schema, chosen)
        return (self._arrived(batch, table) for batch in stream)

    def _stream(
        self, table: Table, selected: str, where: str, schema: pa.Schema, chosen: pa.Table | None = None
    ) -> Iterator[pa.RecordBatch]:
        if not self._is_there(table):
            return iter(())
        sql = f"SELECT {selected} FROM {self.dialect.wide(table.name)} WHERE {where}"
        return self.dialect.connection.stream(sql, schema, chosen=chosen)

    def _is_there(self, table: Table) -> bool:
        """Whether the database has the table in a supported form."""
        renamed = self.dialect.stored[table.name].renamed
        return self.dialect.has(table.name, renamed.get(table.key, table.key))

    def _columns(self, table: Table) -> dict[str, str]:
        """Return the existing columns of the table, as the checksum takes them."""
        stored, has = self.dialect.stored[table.name], self.dialect.connection.has
        found = {}
        for column in table.columns:
            name = stored.renamed.get(column.name, column.name)
            if has(stored.name, name) or (stored.payload is not None and has(stored.payload, name)):
                found[column.name] = self._spelled(column, name)
        return found

    def _day(self, table: Table) -> str:
        """Return SQL for the day in an id."""
        day = f"floor({self.dialect.at_ms(table.key)} / {MS_PER_DAY})" if table.is_dated else str(WHOLE)
        return f"CAST({day} AS INT)"


class ClickHouseOrigin(Origin):
    """A TensorZero database in ClickHouse, to be archived."""

    sums = CLICKHOUSE
    deployment = "DeploymentID"

    def n_bytes(self, table: Table) -> int:
        """Return the approximate bytes of text in the table."""
        rows = self.dialect.connection.query(
            "SELECT sum(data_uncompressed_bytes) FROM system.columns"
            " WHERE database = currentDatabase() AND table = {table:String}",
            {"table": self.dialect.stored[table.name].name},
        )
        return int(rows[0][0] or 0)

    def _in_days(self, table: Table, days: Sequence[int]) -> str:
        return f"{self._day(table)} IN ({', '.join(map(str, days))})" if table.is_dated else "true"

    def _spelled(self, column: Column, name: str) -> str:
        if column.kind == Kind.ID and name.endswith("_uint"):
            return uuid_of(name)
        if column.kind == Kind.HASH:
            return self.dialect.hash(name)
        if column.kind in (Kind.NAME, Kind.TEXT):
            return f"toString({name})"  # also of an enumeration
        return f"toDateTime64({name}, 6, 'UTC')" if column.kind == Kind.TIME else name

    def _selected(self, table: Table) -> tuple[list[str], pa.Schema]:
        found = self._columns(table)
        selected = []
        for column in table.columns:
            sql = found.get(column.name, "NULL")
            selected.append(self.dialect.text(sql) if column.kind == Kind.ID and sql != "NULL" else sql)
        return selected, table.travelling.remove(len(table.columns))


_ITEMS = (
    f"CASE WHEN {{0}} IS NOT NULL THEN ARRAY(SELECT {TEXT_OR_JSON.replace('{0}', 't')}"
    " FROM jsonb_array_elements({0}) WITH ORDINALITY AS items(t, n) ORDER BY n) END"
)
_TRAVELLING: dict[Kind, pa.DataType] = {
    Kind.NAME: pa.string(),
    Kind.TEXT: pa.string(),
    Kind.DECIMAL: pa.string(),
    Kind.TEXTS: pa.list_(pa.string()),
    Kind.TAGS: pa.list_(pa.string()),
}
_NOTHING = {
    Kind.INTEGER: "NULL::bigint",
    Kind.NUMBER: "NULL::float8",
    Kind.FLAG: "NULL::boolean",
    Kind.TIME: "NULL::timestamptz",
    Kind.TEXTS: "NULL::text[]",
}


class PostgresOrigin(Origin):
    """A TensorZero database in Postgres, to be archived.

    The two tables of an inference, or of a model call, are joined here; columns of an expired payload
    are null.
    """

    sums = POSTGRES
    deployment = "tensorzero.deployment_id"

    def describe(self) -> JsonObject:
        """Return its address without credentials, and its `deployment_id` if it has one."""
        return {name: value for name, value in super().describe().items() if name != "schema_level"}

    def n_bytes(self, table: Table) -> int:
        """Return the approximate bytes of text in the table, which is stored compressed."""
        stored = self.dialect.stored[table.name]
        sizes = [
            f"SELECT coalesce(sum(pg_table_size(relid)), 0) AS n FROM"
            f" pg_partition_tree('tensorzero.{name}'::regclass)"
            for name in (stored.name, stored.payload)
            if name is not None and self.dialect.connection.has(name)
        ]
        if not sizes:
            return 0
        ((n_bytes,),) = self.dialect.connection.query(
            f"SELECT sum(n)::bigint FROM ({' UNION ALL '.join(sizes)}) AS sizes"
        )
        return int(n_bytes or 0)

    def _number(self, table: Table) -> str:
        """Return SQL for the number of a row; null if the payload has expired."""
        number = super()._number(table)
        is_one_table = self.dialect.stored[table.name].payload is None
        return number if is_one_table else f"CASE WHEN d.id IS NOT NULL THEN {number} END"

    def _spelled(self, column: Column, name: str) -> str:
        if column.name == "tool_choice":
            return TEXT_OR_JSON.format(f"to_jsonb({name})")
        if column.kind in (Kind.TEXT, Kind.NAME):
            return f"{name}::text"
        if column.kind == Kind.HASH:
            return self.dialect.hash(name)
        return _ITEMS.format(name) if column.kind == Kind.TEXTS else name

    def _selected(self, table: Table) -> tuple[list[str], pa.Schema]:
        """Return tags as a list of keys and one of values, in the order of the keys."""
        found = self._columns(table)
        selected: list[str] = []
        fields: list[tuple[str, Any]] = []
        for column in table.columns:
            sql = found.get(column.name)
            kind = _TRAVELLING.get(column.kind, table.schema.field(column.name).type)
            if column.kind == Kind.TAGS:
                for part in ("key", "value"):
                    of_tags = f'SELECT {part} FROM jsonb_each_text({sql}) ORDER BY key COLLATE "C"'
                    selected.append("NULL::text[]" if sql is None else f"ARRAY({of_tags})")
                    fields.append((f"{column.name}_{part}", kind))
                continue
            if sql is None:
                sql = _NOTHING.get(column.kind, "NULL::text")
            elif column.kind == Kind.ID:
                sql = self.dialect.text(sql)
            elif column.kind == Kind.DECIMAL:
                sql = f"{sql}::numeric(18, 9)::text"
            selected.append(sql)
            fields.append((column.name, kind))
        return selected, pa.schema(fields)

    def _arrived(self, batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
        found: list[Any] = []
        for field in table.travelling:
            if not pa.types.is_map(field.type):
                found.append(batch.column(field.name).cast(field.type))
                continue
            keys: Any = batch.column(f"{field.name}_key")
            values: Any = batch.column(f"{field.name}_value")
            if keys.null_count:  # there is no such column
                found.append(pa.nulls(batch.num_rows).cast(field.type))
            else:
                made = pa.MapArray.from_arrays(keys.offsets, keys.values, values.values)
                found.append(made.cast(field.type))
        return pa.RecordBatch.from_arrays(found, schema=table.travelling)


def origin_of(url: str, access: Access = Access()) -> Origin:  # noqa: B008 -- frozen
    """Connect to a database of either kind, to archive it or to compare it with its archive."""
    return (PostgresOrigin if parse_url(url).is_postgres else ClickHouseOrigin)(url, access)
