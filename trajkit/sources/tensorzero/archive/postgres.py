"""TensorZero's tables in Postgres as an archive takes them.

The two tables of an inference, or of a model call, are one here; where the payload has expired, what was in
it is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.archive.checksum import MODULUS, POSTGRES, row_number
from trajkit.sources.tensorzero.archive.layout import DAY, MS_PER_DAY, WHOLE, Kind, Table
from trajkit.sources.tensorzero.archive.manifest import Seen
from trajkit.sources.tensorzero.archive.origin import KEYS
from trajkit.sources.tensorzero.connect.postgres.clauses import hex_of
from trajkit.sources.tensorzero.connect.postgres.connection import Connection, bound_ids


class _Stored(NamedTuple):
    """Where Postgres has a table of the archive."""

    name: str
    payload: str | None = None
    """The table with the wide columns."""
    renamed: Mapping[str, str] = {}
    """Columns that have another name there."""


_STORED = {
    "chat_inference": _Stored("chat_inferences", "chat_inference_data"),
    "json_inference": _Stored("json_inferences", "json_inference_data"),
    "model_inference": _Stored("model_inferences", "model_inference_data"),
    "float_feedback": _Stored("float_metric_feedback"),
    "boolean_feedback": _Stored("boolean_metric_feedback"),
    "comment_feedback": _Stored("comment_feedback"),
    "demonstration_feedback": _Stored("demonstration_feedback"),
    "config_snapshot": _Stored("config_snapshots", renamed={"templates": "extra_templates"}),
    "evaluation_run": _Stored("workflow_evaluation_runs"),
    "evaluation_episode": _Stored("workflow_evaluation_run_episodes"),
    "chat_datapoint": _Stored("chat_datapoints"),
    "json_datapoint": _Stored("json_datapoints"),
}

_ITEMS = (
    "CASE WHEN {0} IS NOT NULL THEN ARRAY(SELECT CASE jsonb_typeof(t) WHEN 'string' THEN t #>> '{{}}'"
    " ELSE t::text END FROM jsonb_array_elements({0}) WITH ORDINALITY AS items(t, n) ORDER BY n) END"
)
_BARE = "CASE jsonb_typeof({0}) WHEN 'string' THEN {0} #>> '{{}}' ELSE {0}::text END"
_TRAVELLING: dict[Kind, pa.DataType] = {
    Kind.NAME: pa.string(),
    Kind.TEXT: pa.string(),
    Kind.DECIMAL: pa.string(),
    Kind.TEXTS: pa.list_(pa.string()),
    Kind.TAGS: pa.list_(pa.string()),
}


class PostgresOrigin:
    """A TensorZero database in Postgres, to be archived.

    Args:
        url: `postgresql://user:password@host:port/database`.
        access: What its queries may take of the server.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: adbc-driver-postgresql is not installed.
    """

    def __init__(self, url: str, access: Access = Access()) -> None:  # noqa: B008 -- frozen
        self._connection = Connection(url, access)

    def close(self) -> None:
        """Let go of the connections."""
        self._connection.close()

    def describe(self) -> JsonObject:
        """Where this is, without credentials."""
        found: JsonObject = {"kind": "tensorzero-postgres", "url": self._connection.address.shown}
        if self._connection.has("deployment_id", "deployment_id"):
            for (deployment_id,) in self._connection.query(
                "SELECT deployment_id::text FROM tensorzero.deployment_id LIMIT 1"
            ):
                found["deployment_id"] = deployment_id
        return found

    def keys_seen(self, table: Table) -> Mapping[int, Seen]:
        """Per day the rows, and the sum over their keys; over all that they hold in a table without days."""
        if not table.is_dated:
            return self.content_seen(table)
        return self._seen(table, POSTGRES.number.format(f"m.{table.key}::text"))

    def content_seen(self, table: Table) -> Mapping[int, Seen]:
        """Per day the rows, and the sum over all that they hold; rows without their payload add nothing."""
        return self._seen(table, self._number(table))

    def _seen(self, table: Table, number: str) -> Mapping[int, Seen]:
        if not self._is_there(table):
            return {}
        rows = self._connection.query(
            f"SELECT {_day(table)} AS day, count(*), coalesce({POSTGRES.total.format(number)}, '0')"
            f" FROM {self._from(table)} GROUP BY 1 ORDER BY 1"
        )
        return {int(day): Seen(int(n_rows), int(total)) for day, n_rows, total in rows}

    def keys(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream the days, keys and numbers of the rows of these days; null for a row without its payload."""
        key = self._columns(table)[table.key]
        spelled = f"{key}::text" if table.key != "hash" else key
        unsigned = f"(({self._number(table)} + {MODULUS}) % {MODULUS})::text"
        texts = pa.schema([*list(KEYS)[:2], pa.field("number", pa.string())])  # it has no unsigned numbers
        for batch in self._connection.stream(
            f"SELECT {_day(table)}, {spelled}, {unsigned} FROM {self._from(table)}"
            f" WHERE {_in_days(table, days)}",
            texts,
        ):
            number = batch.column("number").cast(pa.uint64())
            yield pa.RecordBatch.from_arrays([*batch.columns[:2], number], schema=KEYS)

    def rows(self, table: Table, days: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Stream the rows of these days."""
        return self._rows(table, _in_days(table, days), {})

    def rows_of(self, table: Table, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the rows that have these keys, in a table that is cut into days."""
        wanted = f"m.{table.key} IN ({bound_ids('keys', len(keys))})"
        return self._rows(table, wanted, {"keys": ",".join(keys)})

    def n_bytes(self, table: Table) -> int:
        """Roughly how many bytes of text the table holds: it lies there compressed."""
        stored = _STORED[table.name]
        sizes = [
            f"SELECT coalesce(sum(pg_table_size(relid)), 0) AS n FROM"
            f" pg_partition_tree('tensorzero.{name}'::regclass)"
            for name in (stored.name, stored.payload)
            if name is not None and self._connection.has(name)
        ]
        if not sizes:
            return 0
        ((n_bytes,),) = self._connection.query(
            f"SELECT sum(n)::bigint FROM ({' UNION ALL '.join(sizes)}) AS sizes"
        )
        return int(n_bytes or 0)

    # -- plumbing --------------------------------------------------------------------------------------------

    def _rows(self, table: Table, where: str, values: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
        if not self._is_there(table):
            return
        selected, fields = self._selected(table)
        stream = self._connection.stream(
            f"SELECT {', '.join(selected)} FROM {self._from(table)} WHERE {where}",
            pa.schema(fields),
            values,
        )
        for batch in stream:
            yield _travelling(batch, table)

    def _is_there(self, table: Table) -> bool:
        """Whether the database has the table, as we know it."""
        stored = _STORED[table.name]
        return self._connection.has(stored.name, stored.renamed.get(table.key, table.key))

    def _from(self, table: Table) -> str:
        stored = _STORED[table.name]
        if stored.payload is None:
            return f"tensorzero.{stored.name} AS m"
        return f"tensorzero.{stored.name} AS m LEFT JOIN tensorzero.{stored.payload} AS d ON d.id = m.id"

    def _columns(self, table: Table) -> dict[str, str]:
        """What there is of the table's columns, as the checksum takes them."""
        stored = _STORED[table.name]
        found = {}
        for column in table.columns:
            name = stored.renamed.get(column.name, column.name)
            if self._connection.has(stored.name, name):
                found[column.name] = _spelled(f"m.{name}", column.name, column.kind)
            elif stored.payload is not None and self._connection.has(stored.payload, name):
                found[column.name] = _spelled(f"d.{name}", column.name, column.kind)
        return found

    def _number(self, table: Table) -> str:
        """The number of a row; null where the payload has expired."""
        number = row_number(table, POSTGRES, self._columns(table))
        is_one_table = _STORED[table.name].payload is None
        return number if is_one_table else f"CASE WHEN d.id IS NOT NULL THEN {number} END"

    def _selected(self, table: Table) -> tuple[list[str], list[tuple[str, Any]]]:
        """What is selected, and of which types it comes: tags as a list of keys and one of values."""
        columns = self._columns(table)
        selected: list[str] = []
        fields: list[tuple[str, Any]] = []
        for column in table.columns:
            kind = _TRAVELLING.get(column.kind, table.schema.field(column.name).type)
            sql = columns.get(column.name)
            if column.kind == Kind.TAGS:
                for part in ("key", "value"):
                    selected.append(_tags(sql, part))
                    fields.append((f"{column.name}_{part}", kind))
                continue
            selected.append(_selected(sql, column.kind))
            fields.append((column.name, kind))
        return [*selected, _day(table)], [*fields, (DAY, pa.int32())]


def _spelled(name: str, column: str, kind: Kind) -> str:
    if column == "tool_choice":
        return _BARE.format(f"to_jsonb({name})")
    if kind in (Kind.TEXT, Kind.NAME):
        return f"{name}::text"
    if kind == Kind.HASH:
        return hex_of(name)
    return _ITEMS.format(name) if kind == Kind.TEXTS else name


_NOTHING = {
    Kind.INTEGER: "NULL::bigint",
    Kind.NUMBER: "NULL::float8",
    Kind.FLAG: "NULL::boolean",
    Kind.TIME: "NULL::timestamptz",
    Kind.TEXTS: "NULL::text[]",
}


def _selected(sql: str | None, kind: Kind) -> str:
    if sql is None:
        return _NOTHING.get(kind, "NULL::text")
    if kind == Kind.ID:
        return f"{sql}::text"
    return f"{sql}::numeric(18, 9)::text" if kind == Kind.DECIMAL else sql


def _tags(sql: str | None, part: str) -> str:
    """The keys or the values of an object of texts, in the order of the keys."""
    if sql is None:
        return "NULL::text[]"
    return f'ARRAY(SELECT {part} FROM jsonb_each_text({sql}) ORDER BY key COLLATE "C")'


def _day(table: Table) -> str:
    """The day in an id; the bits of a UUID are read from its text."""
    if not table.is_dated:
        return str(WHOLE)
    first = f"translate(left(m.{table.key}::text, 13), '-', '')"
    return f"((('x0000' || {first})::bit(64)::bigint) / {MS_PER_DAY})::int"


def _in_days(table: Table, days: Sequence[int]) -> str:
    """The condition on a row to be of these days, which lie in the order of the ids."""
    if not table.is_dated:
        return "true"
    bounds = [(_least_id(day), _least_id(day + 1)) for day in days]
    spans = " OR ".join(f"m.{table.key} >= '{low}' AND m.{table.key} < '{high}'" for low, high in bounds)
    return f"({spans})"


def _least_id(day: int) -> str:
    digits = f"{min(day * MS_PER_DAY, (1 << 48) - 1):012x}"
    return f"{digits[:8]}-{digits[8:]}-0000-0000-000000000000"


def _travelling(batch: pa.RecordBatch, table: Table) -> pa.RecordBatch:
    """A batch in the types in which rows travel."""
    columns: list[Any] = []
    for field in table.travelling:
        if pa.types.is_map(field.type):
            keys: Any = batch.column(f"{field.name}_key")
            values: Any = batch.column(f"{field.name}_value")
            if keys.null_count:  # there is no such column
                columns.append(pa.nulls(batch.num_rows).cast(field.type))
                continue
            columns.append(pa.MapArray.from_arrays(keys.offsets, keys.values, values.values).cast(field.type))
        else:
            columns.append(batch.column(field.name).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=table.travelling)
