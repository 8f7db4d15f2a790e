"""A read-only connection to ClickHouse: its settings, and queries that return rows or Arrow batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa

from trajkit._core.lazy import need
from trajkit.errors import ServiceError
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.connect.dialect import Values
from trajkit.sources.tensorzero.connect.errors import CUT_SHORT, service_errors
from trajkit.sources.tensorzero.connect.url import Address

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_CONNECT_TIMEOUT_S = 10
_STREAM_TIMEOUT_S = 600
"""Longest pause within an answer."""

_BLOCK_BYTES = 16_000_000
"""Approximate size of a batch of rows: one large batch costs less than many small ones."""

_ONLY_READING = "2"
"""ClickHouse's setting `readonly`: every query that would write is refused, for every user."""


class Connection:
    """A read-only connection; every failure of the server or of the network is a `ServiceError`.

    Args:
        address: Where it is.
        access: Limits on its queries on the server.
        patience_s: Longest time of a query in seconds, where `access` sets none and the user may.

    Raises:
        ServiceError: It cannot be reached, or refuses the user or the limits of `access`.
        RequestError: The certificate file has no certificate.
        MissingExtra: clickhouse-connect is not installed.
    """

    def __init__(
        self,
        address: Address,
        access: Access = Access(),  # noqa: B008 -- frozen
        *,
        patience_s: int | None = None,
    ) -> None:
        self.address = address
        self.shown = address.shown
        self._client = _connect(address, access)
        self._columns: dict[str, set[str]] = {}
        try:
            if patience_s is not None and access.max_seconds is None:
                self.prefer("max_execution_time", str(patience_s))
            self._limit(access)
        except BaseException:
            self._client.close()
            raise

    def _limit(self, access: Access) -> None:
        """Set the limits and permissions of every query of this connection on the server."""
        memory = access.max_memory_bytes
        for name, value, option in (
            ("max_threads", access.max_threads, "--max-threads"),
            ("max_memory_usage", memory, "--max-server-memory"),
            ("max_execution_time", access.max_seconds, "--timeout"),
        ):
            if value is not None:
                self._ask_for(name, str(value), option=option)
        if memory is not None:
            # sums and sorts go to the server's disk before they reach the limit
            self.prefer("max_bytes_before_external_group_by", str(memory // 2))
            self.prefer("max_bytes_before_external_sort", str(memory // 2))
        if self.address.is_local:
            # the data stays on this machine: compression would only cost both sides time
            self.prefer("output_format_arrow_compression_method", "none")
        for name, text in self.address.settings:
            self._ask_for(name, text, option=f"{name} in the URL")
        # texts come as strings if the user may set this, else as bytes, which `_cast` reads
        self.prefer("output_format_arrow_string_as_string", "1")
        self.prefer("preferred_block_size_bytes", str(_BLOCK_BYTES))
        # the last one: once it is set, ClickHouse refuses settings that could undo it
        self.prefer("readonly", _ONLY_READING)

    def _ask_for(self, name: str, value: str, *, option: str) -> None:
        setting = self._client.server_settings.get(name)
        if setting is not None and setting.readonly and setting.value != value:
            raise ServiceError(
                f"ClickHouse at {self.address.shown} does not let user {self.address.user!r} change its"
                f" settings: {option} cannot be set ({name} stays {setting.value})",
                hint="leave it out, or ask the server's administrator to allow it",
            )
        with service_errors(self.address):
            self._client.set_client_setting(name, value)

    def prefer(self, name: str, value: str) -> None:
        """Apply a setting if this user may; otherwise keep the server's."""
        if self._may_set(name):
            self._client.set_client_setting(name, value)

    def preferring(self, name: str, value: str) -> str:
        """The SETTINGS clause of a query that prefers its own settings."""
        return f" SETTINGS {name} = {value}" if self._may_set(name) else ""

    def _may_set(self, name: str) -> bool:
        setting = self._client.server_settings.get(name)
        return setting is not None and not setting.readonly

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def has(self, table: str, column: str | None = None) -> bool:
        """Whether the database has this table, and this column in it."""
        if not self._columns:
            rows = self.query(
                "SELECT table, name FROM system.columns WHERE database = {database:String}",
                {"database": self.address.database},
            )
            for name, found in rows:
                self._columns.setdefault(name, set()).add(found)
        return table in self._columns and (column is None or column in self._columns[table])

    def query(self, sql: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Return a small answer as rows."""
        with service_errors(self.address):
            return [tuple(row) for row in self._client.query(sql, parameters=dict(values or {})).result_rows]

    def stream(
        self,
        sql: str,
        schema: pa.Schema,
        values: Values | None = None,
        *,
        chosen: pa.Table | None = None,
        heads: pa.Table | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield an answer of any size as Arrow batches; `heads` (`tables.HEADS`) travels as `chosen` does."""
        with service_errors(self.address):
            answer: Any = self._client.raw_stream(
                sql,
                parameters=dict(values or {}),
                fmt="ArrowStream",
                external_data=_external({"chosen": chosen, "heads": heads}),
            )
            with contextlib.closing(answer):
                watched = _Watched(answer)
                reader = pa.ipc.open_stream(cast("Any", watched))
                for batch in reader:
                    yield _cast(batch, schema)
                if not watched.is_whole:
                    raise ConnectionError(CUT_SHORT)


class _Watched:
    """Follows an answer as it is read: an Arrow stream marks its end, but pyarrow does not require the mark.

    A proxy between here and the server may end an answer early without an error.
    """

    closed = False

    def __init__(self, answer: IO[bytes]) -> None:
        self._answer = answer
        self._tail = b""

    @property
    def is_whole(self) -> bool:
        """Whether the last bytes read are the end mark."""
        return self._tail == _END_OF_ARROW

    def read(self, n_bytes: int = -1) -> bytes:
        """Read what is available, up to this many bytes."""
        read = self._answer.read(n_bytes)
        self._tail = (self._tail + read[-len(_END_OF_ARROW) :])[-len(_END_OF_ARROW) :]
        return read


# https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format: a continuation, and a length of 0
_END_OF_ARROW = b"\xff\xff\xff\xff\0\0\0\0"


def _connect(address: Address, access: Access) -> Client:
    clickhouse = need("clickhouse_connect", extra="clickhouse")
    with service_errors(address):
        client: Client = clickhouse.get_client(
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            database=address.database,
            interface="https" if address.is_tls else "http",
            ca_cert=None if access.ca_certificate is None else str(access.ca_certificate),
            # a session has one query at a time: it would lock out a second stream
            autogenerate_session_id=False,
            connect_timeout=_CONNECT_TIMEOUT_S,
            send_receive_timeout=_STREAM_TIMEOUT_S,
            compress=not address.is_local,
        )
    return client


def _external(travelling: Mapping[str, pa.Table | None]) -> Any:
    """Return the tables that are sent with a query; None when there are none."""
    given = {name: table for name, table in travelling.items() if table is not None}
    if not given:
        return None
    external = need("clickhouse_connect.driver.external", extra="clickhouse").ExternalData()
    for name, table in given.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        structure = [f"{field.name} {_TYPES[field.type]}" for field in table.schema]
        external.add_file(
            file_name=name, fmt="ArrowStream", structure=structure, data=sink.getvalue().to_pybytes()
        )
    return external


_TYPES = {pa.string(): "String", pa.int64(): "Int64"}
"""The ClickHouse type of a column of a table that is sent with a query."""


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    # by place: an alias that repeats the name of a column would change what the query's own conditions mean
    return pa.RecordBatch.from_arrays(
        [_fitted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)],
        schema=schema,
    )


def _fitted(column: Any, goal: pa.DataType) -> pa.Array[Any]:
    """Cast a column; bytes that come for texts are taken as they are, UTF-8 or not."""
    if column.type == goal:
        return cast("pa.Array[Any]", column)
    if pa.types.is_binary(column.type) and pa.types.is_string(goal):
        return cast("pa.Array[Any]", column.view(goal))
    if isinstance(goal, pa.UuidType):
        # a text of fixed length comes as such if the user may set this, else as a text
        is_fixed = pa.types.is_fixed_size_binary(column.type)
        storage = column if is_fixed else column.cast(pa.binary()).cast(goal.storage_type)
        return pa.ExtensionArray.from_storage(goal, storage)
    if isinstance(column, pa.MapArray) and isinstance(goal, pa.MapType):
        offsets: Any = column.offsets
        keys, items = _fitted(column.keys, goal.key_type), _fitted(column.items, goal.item_type)
        return cast("pa.Array[Any]", pa.MapArray.from_arrays(offsets, keys, items))
    return cast("pa.Array[Any]", column.cast(goal))
