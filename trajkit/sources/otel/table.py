"""Read the table `otel_traces` that the collector's exporter for ClickHouse writes, and `otel_logs`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from trajkit.errors import RequestError
from trajkit.schema.base import JsonObject
from trajkit.sources.otel.otlp import Row, with_body
from trajkit.sources.spans.session import SESSION_KEYS
from trajkit.sources.spans.span import flat
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.url import parse_url

DATABASE = "default"
TABLE = "otel_traces"
LOGS = "otel_logs"
_COLUMNS = (
    *(
        "Timestamp",
        "TraceId",
        "SpanId",
        "ParentSpanId",
        "SpanName",
        "Duration",
        "StatusCode",
        "StatusMessage",
    ),
    *("SpanAttributes", "ResourceAttributes", "Events.Timestamp", "Events.Name", "Events.Attributes"),
)
_MODEL_KEYS = (
    "gen_ai.operation.name",
    "gen_ai.system",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "openinference.span.kind",
    "llm.request.type",
)
_TEXT: pa.DataType = pa.string()
_WHOLE: pa.DataType = pa.int64()
_SPANS = pa.schema(
    {
        **dict.fromkeys(("trace", "span", "parent", "name"), _TEXT),
        **dict.fromkeys(("begin", "n_ns"), _WHOLE),
        **dict.fromkeys(("code", "status", "attributes", "resource", "events"), _TEXT),
    }
)
_EVENTS = pa.schema(
    {
        **dict.fromkeys(("trace", "span", "name"), _TEXT),
        "at": _WHOLE,
        **dict.fromkeys(("body", "attributes", "resource"), _TEXT),
    }
)


def rows_of_table(url: str, *, since: datetime | None = None) -> Iterator[Row]:
    """Yield the spans of the sessions that call a model, then the events about models in the log.

    Args:
        url: `clickhouse://user:password@host:8123/database`; `?table=` gives another table name.
        since: Only traces of sessions that end at this time or later.

    Raises:
        RequestError: The URL is invalid, or there is no such table.
        ServiceError: The server cannot be reached, or refuses.
    """
    address = parse_url(url)
    settings = dict(address.settings)
    table = settings.pop("table", TABLE)
    if not urlsplit(url).path.strip("/") and "database=" not in url:
        address = address._replace(database=DATABASE)
    address = address._replace(settings=tuple(settings.items()))
    with contextlib.closing(Connection(address)) as connection:
        is_json = _check(connection, table)
        values = {"since": int(since.timestamp() * 1e9) if since is not None else 0}
        chosen = _chosen(table, is_json=is_json)
        spans = f"""
            SELECT TraceId, SpanId, ParentSpanId, toString(SpanName), toUnixTimestamp64Nano(Timestamp),
                toInt64(Duration), toString(StatusCode), StatusMessage,
                toJSONString(SpanAttributes), toJSONString(ResourceAttributes),
                toJSONString(arrayMap((name, at, said) -> (toString(name), toUnixTimestamp64Nano(at), said),
                    `Events.Name`, `Events.Timestamp`, `Events.Attributes`))
            FROM {_quoted(table)} WHERE TraceId IN ({chosen})"""
        for row in _stream(connection, spans, _SPANS, values):
            yield Row(row["trace"], "span", _span(row))
        if connection.has(LOGS) and table == TABLE:
            is_json = _is_json(connection, LOGS, "LogAttributes")
            name = _attribute("event.name", "LogAttributes", is_json=is_json)
            if connection.has(LOGS, "EventName"):
                name = f"if(EventName != '', EventName, {name})"
            events = f"""
                SELECT TraceId, SpanId, {name} AS event, toUnixTimestamp64Nano(Timestamp), Body,
                    toJSONString(LogAttributes), toJSONString(ResourceAttributes)
                FROM {LOGS} WHERE startsWith(event, 'gen_ai.') AND TraceId IN ({chosen})"""
            for row in _stream(connection, events, _EVENTS, values):
                yield Row(row["trace"], "event", _event(row))


def _chosen(table: str, *, is_json: bool) -> str:
    """Return the query for the traces of sessions that call a model and end late enough.

    A trace may have several sessions, and one of a session may have no call: a score that came later.
    """
    keys = ", ".join(f"nullIf({_attribute(key, is_json=is_json)}, '')" for key in SESSION_KEYS)
    session = f"coalesce({keys}, '')"
    calls = " OR ".join(f"{_attribute(key, is_json=is_json)} != ''" for key in _MODEL_KEYS)
    traces = f"""
        SELECT TraceId AS trace, groupUniqArray({session}) AS named, countIf({calls}) AS n_calls,
            max(toUnixTimestamp64Nano(Timestamp) + toInt64(Duration)) AS ended
        FROM {_quoted(table)} GROUP BY TraceId"""
    sessions = f"""
        SELECT trace, n_calls, ended,
            arrayJoin(if(arrayAll(x -> x = '', named), [concat('trace ', trace)],
                arrayFilter(x -> x != '', named))) AS session
        FROM ({traces})"""
    return f"""
        SELECT trace FROM ({sessions}) WHERE session IN (
            SELECT session FROM ({sessions}) GROUP BY session
            HAVING sum(n_calls) > 0 AND max(ended) >= {{since:Int64}})"""


def _attribute(name: str, column: str = "SpanAttributes", *, is_json: bool) -> str:
    if not is_json:
        return f"{column}['{name}']"
    path = ".".join(f"`{part}`" for part in name.split("."))
    return f"ifNull(toString({column}.{path}), '')"


def _check(connection: Connection, table: str) -> bool:
    """Whether attributes have the type JSON.

    Raises:
        RequestError: There is no such table.
    """
    if not connection.has(table):
        raise RequestError(
            f"there is no table {table} in {connection.shown}",
            hint="the collector's clickhouse exporter writes it; ?table=NAME after the URL names another",
        )
    if missing := [name for name in _COLUMNS if not connection.has(table, name)]:
        raise RequestError(
            f"the table {table} in {connection.shown} has no column {', '.join(missing)}",
            hint=f"the collector's clickhouse exporter writes {', '.join(_COLUMNS)}",
        )
    return _is_json(connection, table, "SpanAttributes")


def _is_json(connection: Connection, table: str, column: str) -> bool:
    rows = connection.query(
        "SELECT type FROM system.columns WHERE database = {database:String} AND table = {table:String}"
        " AND name = {column:String}",
        {"database": connection.address.database, "table": table, "column": column},
    )
    return bool(rows) and str(rows[0][0]).startswith("JSON")


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _stream(connection: Connection, sql: str, schema: pa.Schema, values: Any) -> Iterator[dict[str, Any]]:
    for batch in connection.stream(sql, schema, values):
        yield from batch.to_pylist()


def _span(row: dict[str, Any]) -> JsonObject:
    return {
        "span": row["span"],
        "parent": row["parent"] or None,
        "name": row["name"],
        "begin": row["begin"] or None,
        "end": row["begin"] + row["n_ns"] if row["begin"] else None,
        "attributes": flat(json.loads(row["attributes"])),
        "events": [[name, at, flat(said)] for name, at, said in json.loads(row["events"])],
        "is_error": "error" in row["code"].lower(),
        "status": row["status"],
        "resource": flat(json.loads(row["resource"])),
    }


def _event(row: dict[str, Any]) -> JsonObject:
    try:
        body = json.loads(row["body"]) if row["body"].startswith("{") else row["body"]
    except ValueError:
        body = row["body"]
    return {
        "span": row["span"] or None,
        "name": row["name"],
        "at": row["at"] or None,
        "attributes": with_body(flat(json.loads(row["attributes"])), body),
        "resource": flat(json.loads(row["resource"])),
    }
