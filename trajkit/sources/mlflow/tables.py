"""Read traces from the tables of MLflow's tracking store in SQLite, session by session."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, object_at, shown
from trajkit.sources.sqlite_file import check_columns, columns_of, database, json_cell

SESSION = "mlflow.trace.session"
"""Metadata with the id of the session."""
TABLES = ("trace_info", "trace_request_metadata", "trace_tags", "spans", "assessments", "experiments")
"""The tables to read; MLflow has had all of them since 3.3."""
_NEEDED = {
    "trace_info": {"request_id", "experiment_id", "timestamp_ms", "execution_time_ms"},
    "trace_request_metadata": {"request_id", "key", "value"},
    "trace_tags": {"request_id", "key", "value"},
    "spans": {"trace_id", "span_id", "start_time_unix_nano", "content"},
    "assessments": {
        *("assessment_id", "trace_id", "name", "assessment_type", "value", "created_timestamp", "valid")
    },
    "experiments": {"experiment_id", "name", "lifecycle_stage"},
}


class Trace(NamedTuple):
    """A trace, from the tables or the API."""

    trace_id: str
    metadata: Mapping[str, str]
    tags: Mapping[str, str]
    spans: Sequence[Mapping[str, Any]]
    assessments: Sequence[Mapping[str, Any]]
    """Each with the names of the table's columns; `value` is JSON and `created_at` a time."""


class Group(NamedTuple):
    """The traces of a session, or one trace without a session."""

    name: str
    """The session id, or the id of the trace."""
    is_named: bool
    """Whether it is a session."""
    experiment: str
    """Name of the experiment."""
    is_in_others: bool
    """Whether other experiments have a session with this id."""
    ended_at: datetime | None
    """The latest possible end of the last trace; None if one has not ended."""
    traces: Iterator[Trace]
    """Read lazily; an invalid one is a `BadDocument`."""


def groups_of(place: str, experiment: str | None) -> Iterator[Group]:
    """Yield the groups of a tracking store, in the order of their first traces.

    Args:
        place: Path or URL of the database.
        experiment: Name of the only experiment that is read; None for all that are not deleted.

    Raises:
        RequestError: There is no such experiment.
        DataError: The file is not a tracking store of a supported version, or is damaged.
    """
    with database(place) as connection:
        columns = columns_of(connection)
        check_columns(
            columns,
            _NEEDED,
            other="not a tracking store of MLflow, or one before 3.3",
            hint="upgrade a copy of it with `mlflow db upgrade`; trajkit reads versions 3.3 to 3.18",
        )
        names = dict(
            connection.execute(
                "SELECT name, experiment_id FROM experiments WHERE lifecycle_stage = 'active'"
            ).fetchall()
        )
        if experiment is not None and experiment not in names:
            raise RequestError(f"no experiment {experiment!r}", hint=f"there are: {', '.join(sorted(names))}")
        own = "nullif(m.value, '')"
        session = (
            f"coalesce(nullif(i.session_id, ''), {own})" if "session_id" in columns["trace_info"] else own
        )
        rows = connection.execute(
            f"""
            WITH named AS (
                SELECT i.request_id, i.experiment_id, i.timestamp_ms, {session} AS session,
                    i.timestamp_ms + i.execution_time_ms AS ended_ms
                FROM trace_info i
                LEFT JOIN trace_request_metadata m ON m.request_id = i.request_id AND m.key = '{SESSION}'
            ), grouped AS (
                SELECT *, coalesce(session, request_id) AS name,
                    min(experiment_id) OVER (PARTITION BY session)
                        <> max(experiment_id) OVER (PARTITION BY session) AS is_in_others
                FROM named
            )
            SELECT g.*, e.name AS experiment,
                min(timestamp_ms) OVER same AS first_ms, max(ended_ms) OVER same AS last_ms,
                count(*) OVER same > count(ended_ms) OVER same AS is_running
            FROM grouped g JOIN experiments e ON e.experiment_id = g.experiment_id
            WHERE e.lifecycle_stage = 'active' AND (?1 IS NULL OR e.name = ?1)
            WINDOW same AS (PARTITION BY g.experiment_id, g.name)
            ORDER BY first_ms, g.experiment_id, g.name, g.timestamp_ms, g.request_id
            """,
            (experiment,),
        )
        for _, group in groupby(rows, key=lambda row: (row["experiment_id"], row["name"])):
            first, *others = group
            ids = [row["request_id"] for row in (first, *others)]
            yield Group(
                str(first["name"]),
                first["session"] is not None,
                str(first["experiment"]),
                bool(first["is_in_others"]) and first["session"] is not None,
                _ended(first),
                (_trace(connection, trace_id) for trace_id in ids),
            )


def _ended(row: sqlite3.Row) -> datetime | None:
    """Return the latest possible end of a group's last trace: MLflow truncates times to milliseconds."""
    return None if row["is_running"] or not isinstance(row["last_ms"], int) else _time(row["last_ms"] + 2)


def _trace(connection: sqlite3.Connection, trace_id: str) -> Trace:
    def pairs(table: str) -> dict[str, str]:
        rows = connection.execute(
            f"SELECT key, value FROM {table} WHERE request_id = ? ORDER BY key", (trace_id,)
        )
        return {row["key"]: row["value"] for row in rows if row["value"] is not None}

    spans = connection.execute(
        "SELECT span_id, content FROM spans WHERE trace_id = ? ORDER BY start_time_unix_nano, span_id",
        (trace_id,),
    )
    assessments = connection.execute(
        "SELECT * FROM assessments WHERE trace_id = ? ORDER BY created_timestamp, assessment_id", (trace_id,)
    )
    return Trace(
        trace_id,
        pairs("trace_request_metadata"),
        pairs("trace_tags"),
        [
            object_at(json_cell(row["content"], f"spans {row['span_id']}"), f"spans {row['span_id']}")
            for row in spans
        ],
        [_assessment(dict(row)) for row in assessments],
    )


def _assessment(row: Mapping[str, Any]) -> dict[str, Any]:
    where = f"assessments {row['assessment_id']}"
    plain = {name: row.get(name) for name in _ASSESSMENT}
    for name in ("value", "error", "assessment_metadata"):
        plain[name] = None if plain[name] is None else json_cell(plain[name], f"{where}.{name}")
    return {**plain, "valid": bool(row["valid"]), "created_at": _time(row["created_timestamp"])}


_ASSESSMENT = (
    *("assessment_id", "trace_id", "span_id", "name", "assessment_type", "value", "error", "source_type"),
    *("source_id", "run_id", "rationale", "overrides", "assessment_metadata"),
)


def _time(ms: Any) -> datetime:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except (TypeError, OverflowError) as error:
        raise BadDocument("not a time in milliseconds", value=shown(ms)) from error
