"""Read groups of spans from Phoenix's SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, known_time_at
from trajkit.sources.sqlite_file import check_columns, columns_of, database, json_cell

TABLES = ("projects", "project_sessions", "traces", "spans", "span_annotations", "trace_annotations")
"""The tables by which the database is recognised."""
_NEEDED = {
    "projects": {"id", "name"},
    "project_sessions": {"id", "session_id"},
    "traces": {"id", "trace_id", "project_rowid", "project_session_rowid", "start_time", "end_time"},
    "spans": {"trace_rowid", "span_id", "parent_id", "span_kind", "start_time", "attributes", "events"},
    "span_annotations": {"span_rowid", "name", "label", "score", "explanation", "metadata"},
    "trace_annotations": {"trace_rowid", "name", "label", "score", "explanation", "metadata"},
}
_SESSION_SCORES = "project_session_annotations"
"""A table that Phoenix has had since version 12."""


class Group(NamedTuple):
    """The traces of a session, or one trace without a session."""

    name: str
    """The session id, or the id of the trace."""
    is_session: bool
    project: str
    """Name of its project."""
    ended_at: datetime | None
    """When its last trace ended; None if unknown."""
    spans: Iterator[Mapping[str, Any]]
    """Read lazily; an invalid one is a `BadDocument`."""
    annotations: Iterator[Mapping[str, Any]]
    """Those of the session, its traces and its spans; read after the spans."""
    has_document_scores: bool = False


def latest(times: Iterable[Any]) -> datetime | None:
    """Return the latest of some times; None if one is invalid."""
    try:
        return max(known_time_at(one, "") for one in times)
    except BadDocument:
        return None


def groups_of(place: str, project: str | None) -> Iterator[Group]:
    """Yield the groups of a database, in the order of their first traces.

    Args:
        place: Path or URL of the database.
        project: Name of the only project that is read; None for all.

    Raises:
        RequestError: There is no such project.
        DataError: The file is not a database of a supported version, or is damaged.
    """
    with database(place) as connection:
        columns = columns_of(connection)
        check_columns(
            columns,
            _NEEDED,
            other="not a database of Phoenix, or one before version 8",
            hint="trajkit reads the database of Phoenix 20",
        )
        names = sorted(name for (name,) in connection.execute("SELECT name FROM projects"))
        if project is not None and project not in names:
            raise RequestError(f"no project {project!r}", hint=f"there are: {', '.join(names)}")
        rows = connection.execute(
            """
            WITH grouped AS (
                SELECT t.id, t.trace_id, t.start_time, t.end_time, t.project_rowid, s.id AS session_rowid,
                    s.session_id, coalesce('s' || s.id, 't' || t.id) AS part
                FROM traces t LEFT JOIN project_sessions s ON s.id = t.project_session_rowid
            )
            SELECT g.*, p.name AS project,
                min(start_time) OVER (PARTITION BY part) AS first,
                max(end_time) OVER (PARTITION BY part) AS last
            FROM grouped g JOIN projects p ON p.id = g.project_rowid
            WHERE ?1 IS NULL OR p.name = ?1
            ORDER BY first, part, start_time, g.id
            """,
            (project,),
        )
        for _, group in groupby(rows, key=lambda row: row["part"]):
            first, *others = group
            traces = {row["id"]: str(row["trace_id"]) for row in (first, *others)}
            yield Group(
                name=str(first["session_id"] or first["trace_id"]),
                is_session=first["session_id"] is not None,
                project=str(first["project"]),
                ended_at=latest([first["last"]]),
                spans=_spans(connection, traces, has_costs="span_costs" in columns),
                annotations=_annotations(connection, traces, first["session_rowid"], columns),
                has_document_scores="document_annotations" in columns and _has_documents(connection, traces),
            )


def _spans(
    connection: sqlite3.Connection, traces: Mapping[int, str], *, has_costs: bool
) -> Iterator[dict[str, Any]]:
    cost = "(SELECT max(total_cost) FROM span_costs c WHERE c.span_rowid = s.id)" if has_costs else "NULL"
    for row_id, trace_id in traces.items():
        rows = connection.execute(
            f"SELECT s.*, {cost} AS total_cost FROM spans s WHERE trace_rowid = ? ORDER BY start_time, id",
            (row_id,),
        )
        for row in rows:
            where = f"spans {row['span_id']}"
            plain = {name: row[name] for name in row.keys()}  # noqa: SIM118 -- a row of sqlite3 gives its values
            plain |= {name: json_cell(row[name], f"{where}.{name}") for name in ("attributes", "events")}
            yield {**plain, "trace_id": trace_id}


def _annotations(
    connection: sqlite3.Connection,
    traces: Mapping[int, str],
    session_rowid: int | None,
    columns: Mapping[str, frozenset[str]],
) -> Iterator[dict[str, Any]]:
    if session_rowid is not None and _SESSION_SCORES in columns:
        yield from _rows(
            connection,
            "ProjectSessionAnnotation",
            f"{_SESSION_SCORES} a",
            "a.project_session_id = ?",
            session_rowid,
        )
    for row_id, trace_id in traces.items():
        for row in _rows(connection, "TraceAnnotation", "trace_annotations a", "a.trace_rowid = ?", row_id):
            yield {**row, "trace_id": trace_id}
        joined = "spans s JOIN span_annotations a ON a.span_rowid = s.id"
        for row in _rows(connection, "SpanAnnotation", joined, "s.trace_rowid = ?", row_id, ", s.span_id"):
            yield {**row, "trace_id": trace_id}


def _rows(
    connection: sqlite3.Connection, kind: str, table: str, where: str, row_id: int, more: str = ""
) -> Iterator[dict[str, Any]]:
    for row in connection.execute(f"SELECT a.*{more} FROM {table} WHERE {where} ORDER BY a.id", (row_id,)):
        plain = {name: row[name] for name in row.keys()}  # noqa: SIM118
        own = f"{kind}:{plain['id']}"
        yield {**plain, "id": own, "metadata": json_cell(plain["metadata"], f"{own}.metadata")}


def _has_documents(connection: sqlite3.Connection, traces: Mapping[int, str]) -> bool:
    joined = "spans s JOIN document_annotations d ON d.span_rowid = s.id"
    sql = f"SELECT 1 FROM {joined} WHERE s.trace_rowid = ? LIMIT 1"
    return any(connection.execute(sql, (row_id,)).fetchone() for row_id in traces)
