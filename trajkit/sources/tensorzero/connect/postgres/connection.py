"""A read-only connection to Postgres, with queries that return rows or Arrow batches.

Every query runs in a read-only transaction of its own. COPY, by which Arrow batches stream, takes no
parameters: values are bound as settings of that transaction, `trajkit.NAME`, and the query reads them
(`bound`). So this works for users who may not make temporary tables, on replicas, and behind poolers that
share connections by transaction.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pyarrow as pa

from trajkit._core.lazy import need
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.connect.background import Told, in_background
from trajkit.sources.tensorzero.connect.dialect import Values
from trajkit.sources.tensorzero.connect.errors import service_errors
from trajkit.sources.tensorzero.connect.url import Address

_CONNECT_TIMEOUT_S = 10
_SILENCE_S = 1800.0
"""How long a server may work on a query before its first rows, and between others."""
_UNHEARD_MS = 60_000
"""How long the network may not confirm what was sent before a connection is given up."""
_IDLE_S = 30.0
"""How long an unused connection is kept."""
_LOCK_TIMEOUT_MS = 10_000
"""Reads wait only for a change of the table definitions."""
_BATCH_BYTES = 8_000_000
_ALWAYS = {
    "client_encoding": "UTF8",
    "extra_float_digits": "1",  # the shortest decimal of a number
    "jit": "off",  # it takes longer than it saves for these queries
    "lock_timeout": str(_LOCK_TIMEOUT_MS),
    "search_path": "pg_catalog",
}


def bound(name: str) -> str:
    """SQL for a text that is bound; evaluated once for a query."""
    return f"(SELECT current_setting('trajkit.{name}'))"


def bound_list(name: str) -> str:
    """SQL for a list of texts that is bound, as an array."""
    return f"ARRAY(SELECT json_array_elements_text(current_setting('trajkit.{name}')::json))"


class Connection:
    """Read-only connections, one for each open stream; every failure is a `ServiceError`.

    Args:
        address: Where it is.
        access: Limits on queries on the server.
        patience_s: Longest time of a query in seconds, where `access` sets none.
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
        self._access = access.model_copy(update={"max_seconds": access.max_seconds or patience_s})
        self._idle: list[tuple[_One, float]] = []
        self._lock = threading.Lock()
        self._columns: dict[str, set[str]] | None = None
        self.query("SELECT 1")  # to report a wrong password now

    def close(self) -> None:
        """Close them."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def has(self, table: str, column: str | None = None) -> bool:
        """Whether the database has this table, readable for this user, and this column in it."""
        if self._columns is None:
            rows = self.query(
                """
                SELECT c.relname, a.attname FROM pg_class c
                JOIN pg_namespace n ON n.oid = c.relnamespace
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                WHERE n.nspname = 'tensorzero' AND c.relkind IN ('r', 'p', 'v', 'm')
                    AND NOT c.relispartition AND has_table_privilege(c.oid, 'SELECT')
                """
            )
            self._columns = {}
            for name, found in rows:
                self._columns.setdefault(name, set()).add(found)
        return table in self._columns and (column is None or column in self._columns[table])

    def query(self, sql: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Return a small answer as rows."""
        rows: list[tuple[Any, ...]] = []
        for batch in self._batches(sql, values or {}):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return rows

    def stream(
        self, sql: str, schema: pa.Schema, values: Values | None = None, *, chosen: pa.Table | None = None
    ) -> Iterator[pa.RecordBatch]:
        """An answer of any size as Arrow batches; `bound` and `bound_list` are how a query reads `values`."""
        if chosen is not None:
            values = {**(values or {}), "chosen": ",".join(map(str, chosen.column(0).to_pylist()))}
            every = "(SELECT string_to_array(current_setting('trajkit.chosen'), ',')::uuid[])"
            # the series tells the planner how many there are
            ids = f"SELECT ({every})[i] AS id FROM generate_series(1, {chosen.num_rows}) AS i"
            sql = f"WITH chosen AS MATERIALIZED ({ids}) ({sql})"
        for batch in self._batches(sql, values or {}):
            if batch.num_rows:
                yield _cast(batch, schema)

    # -- plumbing --------------------------------------------------------------------------------------------

    def _batches(self, sql: str, values: Values) -> Iterator[pa.RecordBatch]:
        with service_errors(self.address):
            yield from in_background(lambda told: self._read(sql, values, told), silence_s=_SILENCE_S)

    def _read(self, sql: str, values: Values, told: Told) -> Generator[pa.RecordBatch, None, None]:
        """The answer of a query, in a transaction of its own."""
        settings = {**_ALWAYS, **self._limits(), **{f"trajkit.{k}": v for k, v in values.items()}}
        with self._taken() as taken:
            told.cancel = taken.cancel
            taken.run("BEGIN READ ONLY")
            taken.bind(settings)
            yield from taken.read(sql)
            taken.run("ROLLBACK")

    def _limits(self) -> dict[str, str]:
        """The limits of a query. Postgres limits each sort and each hash table, not a query's memory."""
        limits = {}
        if self._access.max_threads is not None:
            limits["max_parallel_workers_per_gather"] = str(self._access.max_threads - 1)
        if self._access.max_memory_bytes is not None:
            limits["work_mem"] = str(max(64, self._access.max_memory_bytes // 8 // 1024))  # in kB
            limits["hash_mem_multiplier"] = "1"
        if self._access.max_seconds is not None:
            limits["statement_timeout"] = str(self._access.max_seconds * 1000)
        return limits

    @contextlib.contextmanager
    def _taken(self) -> Iterator[_One]:
        """Lend a connection; after a failure or an interruption it is not used again."""
        connection = self._last_used() or _One(self.address.connection_string(**self._parameters()))
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append((connection, time.monotonic()))

    def _last_used(self) -> _One | None:
        """The connection that was last used, unless the server may have closed it meanwhile."""
        with self._lock:
            idle = self._idle
            fresh = [each for each in idle if time.monotonic() - each[1] < _IDLE_S]
            self._idle = fresh[:-1]
        for connection, _ in idle[: len(idle) - len(fresh)]:
            connection.close()
        return fresh[-1][0] if fresh else None

    def _parameters(self) -> dict[str, str]:
        """Parameters for libpq, which the URL may override."""
        trusted = self._access.ca_certificate
        tls = {} if trusted is None else {"sslrootcert": str(trusted), "sslmode": "verify-full"}
        return {
            "connect_timeout": str(_CONNECT_TIMEOUT_S),
            "tcp_user_timeout": str(_UNHEARD_MS),
            "keepalives_idle": "30",
            "application_name": "trajkit",
            **tls,
        }


class _One:
    """One connection. It uses the driver directly: its DB-API imports every installed data frame library.

    Args:
        parameters: Parameters for libpq.
    """

    def __init__(self, parameters: str) -> None:
        self._manager = need("adbc_driver_manager", extra="postgres")
        self._driver = need("adbc_driver_postgresql", extra="postgres")
        self._database = self._driver.connect(parameters)
        try:
            self._connection = self._manager.AdbcConnection(self._database)
        except BaseException:
            self._database.close()
            raise
        self._statement: Any = None

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(self._manager.Error):  # its error was already reported
            self._connection.close()
            self._database.close()

    def run(self, sql: str) -> None:
        """Run a statement without an answer."""
        with self._manager.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            statement.execute_update()

    def bind(self, settings: Mapping[str, str | list[str]]) -> None:
        """Set settings for this transaction; their names and values are parameters."""
        calls = ", ".join(f"set_config(${2 * n + 1}, ${2 * n + 2}, true)" for n in range(len(settings)))
        texts = [
            text
            for name, value in settings.items()
            for text in (name, value if isinstance(value, str) else json.dumps(value))
        ]
        row = pa.RecordBatch.from_pydict({str(n): [text] for n, text in enumerate(texts)})
        with self._manager.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(f"SELECT {calls}")
            statement.bind(row)
            found, _ = statement.execute_query()
            pa.RecordBatchReader.from_stream(found).read_all()

    def read(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The answer of a query, by COPY."""
        options = self._driver.StatementOptions
        with self._manager.AdbcStatement(self._connection) as statement:
            self._statement = statement
            statement.set_options(
                **{options.USE_COPY.value: "true", options.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
            )
            statement.set_sql_query(sql)
            found, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(found) as reader:
                yield from reader

    def cancel(self) -> None:
        """Ask the server to cancel; a statement that has ended by then does no harm."""
        if self._statement is not None:
            with contextlib.suppress(self._manager.Error):
                self._statement.cancel()


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            # an unsigned number comes as the signed one of the same bits
            column if column.type == field.type else column.cast(field.type, safe=field.type != pa.uint64())
            for column, field in zip(batch.columns, schema, strict=True)
        ],
        schema=schema,
    )
