"""Read rows from Langfuse's tables in ClickHouse: those of version 3, or `events_full` of version 4.

Every version of a row is read, and the last counts: Langfuse's tables delete the others only later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from trajkit.errors import DataError, RequestError
from trajkit.sources.langfuse.rows import OBSERVATION, SCORE, TRACE
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.url import Address, parse_url

_TIMES = ("start_time", "end_time", "completion_start_time", "timestamp", "event_ts")
_OBJECTS = ("metadata", "usage_details", "cost_details", "tool_definitions", "tags")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN = "trajkit reads the tables of Langfuse 3 (traces, observations, scores) and 4 (events_full, scores)"


class _Table(NamedTuple):
    """The table of a kind of row."""

    name: str
    needed: Sequence[str]
    """Columns that every supported version has."""
    others: Sequence[str] = ()
    """Columns that some versions have."""
    renamed: Mapping[str, str] = {}
    """The name in a row, by column, if it differs."""


_CALL = (
    *("trace_id", "type", "start_time", "end_time", "name", "level", "status_message", "input", "output"),
    *("provided_model_name", "model_parameters", "usage_details", "cost_details", "prompt_name"),
    *("prompt_version", "completion_start_time", "version", "event_ts", "is_deleted", "project_id"),
)
_SCORES = _Table(
    "scores",
    (
        *("id", "timestamp", "trace_id", "observation_id", "name", "value", "source", "comment"),
        *("author_user_id", "config_id", "data_type", "string_value", "event_ts", "is_deleted"),
    ),
    ("session_id", "dataset_run_id", "long_string_value"),
)
_V3 = {
    TRACE: _Table(
        "traces",
        (
            *("id", "timestamp", "name", "user_id", "metadata", "release", "version", "tags", "session_id"),
            *("event_ts", "is_deleted", "project_id"),
        ),
        ("environment",),
    ),
    OBSERVATION: _Table(
        "observations",
        ("id", "parent_observation_id", "metadata", "total_cost", *_CALL),
        ("environment", "tool_definitions"),
    ),
    SCORE: _SCORES,
}
_V4 = {
    OBSERVATION: _Table(
        "events_full",
        (
            *("span_id", "parent_span_id", "session_id", "user_id", "tags", "release", "trace_name"),
            *("environment", "tool_definitions", "metadata_names", "metadata_values", *_CALL),
        ),
        renamed={"span_id": "id", "parent_span_id": "parent_observation_id"},
    ),
    SCORE: _SCORES,
}


def is_database(place: str) -> bool:
    """Whether a URL is of ClickHouse and not of the API: it has the scheme, a user or a database."""
    parts = urlsplit(place)
    return parts.scheme.startswith("clickhouse") or "@" in parts.netloc or bool(parts.path.strip("/"))


def rows_of(place: str, since: datetime | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a project.

    Args:
        place: URL of the database; `?project=ID` chooses the project if there are several.
        since: Leave out sessions in which nothing happened since then.

    Raises:
        RequestError: The project does not exist, or must be chosen.
        DataError: The version of the tables is not supported.
        ServiceError: The server cannot be reached, or refuses.
    """
    address = parse_url(place)
    settings = dict(address.settings)
    project = settings.pop("project", None)
    if not urlsplit(place).path.strip("/") and "database=" not in place:
        address = address._replace(database="default")
    with closing(Connection(address._replace(settings=tuple(settings.items())))) as connection:
        tables = _tables(connection, address)
        values: dict[str, Any] = {"project": _project(connection, tables[OBSERVATION].name, project)}
        for kind, table in tables.items():
            where = "project_id = {project:String}"
            if since is not None:
                has_session = kind == SCORE and connection.has(table.name, "session_id")
                where += f" AND {_touched(kind, tables, has_session=has_session)}"
                values["since"] = (since - _EPOCH) // timedelta(microseconds=1)
            for row in _rows(connection, table, where, values):
                yield kind, row


def _tables(connection: Connection, address: Address) -> Mapping[str, _Table]:
    """Return the tables of the database's version."""
    if connection.has("events_full") and (
        not connection.has("observations") or connection.query("SELECT 1 FROM events_full LIMIT 1")
    ):
        tables: Mapping[str, _Table] = _V4
    elif connection.has("observations"):
        tables = _V3
    elif connection.has("events_core"):
        raise DataError(
            f"{address.shown} has events_core and not events_full: Langfuse cuts the texts in it",
            hint="read the database with events_full, the blob storage export, or the API",
        )
    else:
        raise DataError(f"{address.shown} has no tables of Langfuse", hint=_KNOWN)
    for table in tables.values():
        missing = [name for name in table.needed if not connection.has(table.name, name)]
        if missing:
            what = f"table {table.name}" if not connection.has(table.name) else f"{table.name}.{missing[0]}"
            raise DataError(f"{address.shown} has no {what}", hint=_KNOWN)
    return tables


def _project(connection: Connection, table: str, wanted: str | None) -> str:
    found = sorted(name for (name,) in connection.query(f"SELECT DISTINCT project_id FROM {table}"))
    if wanted is None and len(found) > 1:
        raise RequestError(
            f"there are {len(found)} projects: {', '.join(found[:10])}",
            hint="choose one with ?project=ID at the end of the URL",
        )
    if wanted is not None and wanted not in found:
        raise RequestError(f"no project {wanted!r}", hint=f"there are: {', '.join(found[:10])}")
    return wanted if wanted is not None else next(iter(found), "")


def _touched(kind: str, tables: Mapping[str, _Table], *, has_session: bool) -> str:
    """Return the condition for rows of sessions with recent activity."""
    named, own = ("traces", "id") if TRACE in tables else (tables[OBSERVATION].name, "trace_id")
    project = "project_id = {project:String}"
    late = (
        f"SELECT trace_id FROM {tables[OBSERVATION].name} WHERE {project}"
        " AND coalesce(end_time, start_time) >= fromUnixTimestamp64Micro({since:Int64})"
    )
    sessions = f"SELECT session_id FROM {named} WHERE {project} AND session_id != '' AND {own} IN ({late})"
    traces = f"{late} UNION ALL SELECT {own} FROM {named} WHERE {project} AND session_id IN ({sessions})"
    if kind == TRACE:
        return f"id IN ({traces})"
    of_session = f" OR session_id IN ({sessions})" if has_session else ""
    return f"(trace_id IN ({traces}){of_session})"


def _rows(
    connection: Connection, table: _Table, where: str, values: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    columns = [*table.needed, *(name for name in table.others if connection.has(table.name, name))]
    schema = pa.schema([(name, pa.int64() if name in _TIMES else pa.string()) for name in columns])
    sql = f"SELECT {', '.join(map(_expression, columns))} FROM {table.name} WHERE {where}"
    for batch in connection.stream(sql, schema, values):
        for row in batch.to_pylist():
            found = {table.renamed.get(name, name): value for name, value in row.items()}
            for name in _TIMES:
                if found.get(name) is not None:
                    found[name] = (_EPOCH + timedelta(microseconds=found[name])).isoformat()
            yield _joined(found)


def _expression(column: str) -> str:
    if column in _TIMES:
        return f"toUnixTimestamp64Micro(toDateTime64({column}, 6, 'UTC'))"
    if column in _OBJECTS or column.startswith("metadata_"):
        return f"toJSONString({column})"
    return f"toValidUTF8(toString({column}))"


def _joined(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of version 4 with its metadata as an object."""
    if "metadata_names" not in row:
        return row
    names, texts = json.loads(row.pop("metadata_names")), json.loads(row.pop("metadata_values"))
    return {**row, "metadata": dict(zip(names, texts, strict=False))}
