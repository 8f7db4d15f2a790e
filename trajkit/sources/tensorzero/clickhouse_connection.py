"""A connection to ClickHouse that only reads: its URL, its errors, and rows or Arrow batches out of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from trajkit._lazy import need
from trajkit.errors import RequestError, ServiceError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_CONNECT_TIMEOUT_S = 10
_STREAM_TIMEOUT_S = 600


class Address(NamedTuple):
    """A ClickHouse URL taken apart."""

    host: str
    port: int
    is_tls: bool
    user: str
    password: str
    database: str

    @property
    def shown(self) -> str:
        """The URL without credentials."""
        return f"{'https' if self.is_tls else 'http'}://{self.host}:{self.port}/{self.database}"

    def __repr__(self) -> str:
        """Never the password."""
        return f"Address({self.shown})"


def parse_url(url: str) -> Address:
    """Take apart a URL as TensorZero writes it: `http://user:password@host:8123/database`.

    Raises:
        RequestError: It has no host, or is not http or https. The message does not repeat the URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RequestError("the ClickHouse URL has a port that is not a number") from None
    if parts.scheme not in ("http", "https", "clickhouse") or not parts.hostname:
        raise RequestError(
            "the ClickHouse URL must start with http:// or https:// and name a host"
            f" (it starts with {parts.scheme!r})",
            hint="such as http://user:password@127.0.0.1:8123/tensorzero",
        )
    is_tls = parts.scheme == "https"
    return Address(
        host=parts.hostname,
        port=port or (8443 if is_tls else 8123),
        is_tls=is_tls,
        user=unquote(parts.username or "default"),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.strip("/")) or "tensorzero",
    )


class Connection:
    """A read-only connection; every failure of the server or of the network is a `ServiceError`.

    Args:
        url: `http://user:password@host:port/database`.
    """

    def __init__(self, url: str) -> None:
        self.address = parse_url(url)
        self._client = _connect(self.address)
        self._columns: dict[str, set[str]] = {}

    def close(self) -> None:
        """Let go of it."""
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

    def query(self, sql: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """A small answer as rows."""
        with _service_errors(self.address):
            return [tuple(row) for row in self._client.query(sql, parameters=parameters).result_rows]

    def stream(
        self,
        sql: str,
        schema: pa.Schema,
        parameters: dict[str, Any] | None = None,
        *,
        chosen: pa.Table | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """An answer of any size as Arrow batches of this schema.

        Args:
            sql: The query; it may read `chosen`.
            schema: What the batches are named and cast to, in the order of the query's columns.
            parameters: Bound by the server, never pasted into the query.
            chosen: A table of one column `episode_id` that travels with the query; it needs no right to
                write.
        """
        with _service_errors(self.address):
            stream = self._client.query_arrow_stream(
                sql, parameters=parameters, use_strings=True, external_data=_external(chosen)
            )
            with stream as batches:
                for batch in batches:
                    yield _cast(batch, schema)


def _connect(address: Address) -> Client:
    clickhouse = need("clickhouse_connect", extra="clickhouse")
    with _service_errors(address):
        client: Client = clickhouse.get_client(
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            database=address.database,
            interface="https" if address.is_tls else "http",
            # one session would lock out a second stream: clickhouse.md, "one client = one session"
            autogenerate_session_id=False,
            connect_timeout=_CONNECT_TIMEOUT_S,
            send_receive_timeout=_STREAM_TIMEOUT_S,
            compress=not address.host.startswith("127.") and address.host not in ("localhost", "::1"),
        )
    return client


_WRONG_USER = 516
_NO_DATABASE = 81


@contextlib.contextmanager
def _service_errors(address: Address) -> Iterator[None]:
    """Every way in which clickhouse-connect says that something failed becomes one `ServiceError`."""
    failures = need("clickhouse_connect.driver.exceptions", extra="clickhouse")
    http = need("urllib3.exceptions", extra="clickhouse")
    try:
        yield
    except (
        failures.ClickHouseError,
        http.HTTPError,
        pa.ArrowInvalid,
        ConnectionError,
        TimeoutError,
    ) as error:
        raise _translated(error, address) from error


def _translated(error: Exception, address: Address) -> ServiceError:
    text = str(error)
    code = getattr(error, "code", None)
    if code == _WRONG_USER or "AUTHENTICATION_FAILED" in text:
        return ServiceError(
            f"ClickHouse at {address.shown} refused user {address.user!r}: wrong user or password",
            hint="user and password stand in the URL: http://user:password@host:8123/database",
        )
    if code == _NO_DATABASE or "UNKNOWN_DATABASE" in text:
        return ServiceError(
            f"ClickHouse at {address.host}:{address.port} has no database {address.database!r}",
            hint="the database is the last part of the URL",
        )
    if any(
        sign in text for sign in ("Connection refused", "Max retries", "timed out", "resolve", "unreachable")
    ):
        return ServiceError(
            f"ClickHouse at {address.shown} cannot be reached",
            hint="is it running? `trajkit up` starts a local one",
        )
    if address.password:
        text = text.replace(address.password, "***")
    reason = text.splitlines()[0][:500] if text else type(error).__name__
    return ServiceError(f"ClickHouse at {address.shown} failed: {reason}")


def _external(chosen: pa.Table | None) -> Any:
    if chosen is None:
        return None
    external = need("clickhouse_connect.driver.external", extra="clickhouse")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, chosen.schema) as writer:
        writer.write_table(chosen)
    return external.ExternalData(
        file_name="chosen",
        fmt="ArrowStream",
        structure=["episode_id String"],
        data=sink.getvalue().to_pybytes(),
    )


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    # by place: an alias that repeats the name of a column would change what the query's own conditions mean
    columns = [batch.column(number) for number in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(
        [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )
