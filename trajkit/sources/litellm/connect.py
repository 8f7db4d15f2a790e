"""Read the spend logs of the LiteLLM proxy: the table in Postgres, or its rows as JSON, JSONL or CSV."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument
from trajkit.sources.calls import Gathered, Session, found_by
from trajkit.sources.files.exported import rows_under
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.importing import is_url, shown_place
from trajkit.sources.files.texts import opened
from trajkit.sources.litellm.rows import NEEDED, NO_CALL, is_call, session_name, session_of
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.wish import Wish

TABLE = "LiteLLM_SpendLogs"
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv")
_OF_LIBPQ = frozenset(
    {"host", "port", "user", "password", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey", "options"}
)
"""Parameters of a URL that Postgres's library knows; Prisma has others, such as `connection_limit`."""
_LARGEST_HEAD = 1_000_000


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of a database, a file, or a folder of files."""
    if is_url(place):
        yield from _of_database(place, wish)
        return
    path = Path(place)
    with Gathered() as gathered:
        for one in rows_under(path, _SUFFIXES):
            if isinstance(one, Found | Unread):
                yield one
                continue
            where, row = one
            if lacking := [name for name in NEEDED if name not in row]:
                yield Found(where, problem=BadDocument(f"no row of {TABLE}", lacking[0]).problem)
            else:
                gathered.add(session_name(row), row)
        for name, parts in gathered.groups():
            yield _found(name, parts[""], path.name)


def _found(name: str, rows: list[dict[str, Any]], place: str) -> Found:
    calls = [row for row in rows if is_call(row)]

    def make() -> Session | None:
        return session_of(name, calls, place) if calls else None

    return found_by(make, f"{place}: session {name}", empty=NO_CALL)


def _of_database(url: str, wish: Wish) -> Iterator[Found]:
    """Yield the sessions of a database, which sorts them: memory holds one."""
    import pyarrow as pa

    from trajkit.sources.tensorzero.connect.postgres.connection import Connection, bound
    from trajkit.sources.tensorzero.connect.url import parse_url

    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise RequestError(
            f"LiteLLM's spend logs are in Postgres, and {shown_place(url)} is none",
            hint="--from litellm postgresql://USER:PASSWORD@HOST:5432/DATABASE, or a file of the rows",
        )
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] in _OF_LIBPQ])
    address = parse_url(urlunsplit((*parts[:3], query, "")))
    values: dict[str, str] = {}
    with closing(Connection(address)) as connection:
        table = _table(connection, dict(parse_qsl(parts.query)).get("schema"))
        name = (
            "coalesce(nullif(row.session_id, ''), row.request_id)" if table.has_session else "row.request_id"
        )
        recent = ""
        if wish.since is not None:
            values["since"] = wish.since.replace(tzinfo=None).isoformat()
            recent = (
                f' WHERE {name} IN (SELECT {name} FROM {table.name} AS row WHERE row."endTime" >='
                f" {bound('since')}::timestamp)"
            )
        sql = (
            f"SELECT {name} AS name, row_to_json(row)::text AS row FROM {table.name} AS row{recent}"
            ' ORDER BY 1, row."startTime", row.request_id'
        )
        schema = pa.schema([("name", pa.string()), ("row", pa.string())])
        rows = (
            pair
            for batch in connection.stream(sql, schema, values)
            for pair in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        )
        for session, group in itertools.groupby(rows, key=lambda pair: pair[0]):
            yield _found(session, [json.loads(str(row)) for _, row in group], shown_place(url))


class _Table:
    """The table as a query names it.

    Args:
        schema: Its schema.
        columns: Its columns.
    """

    def __init__(self, schema: str, columns: set[str]) -> None:
        quoted = schema.replace('"', '""')
        self.name = f'"{quoted}"."{TABLE}"'
        self.has_session = "session_id" in columns


def _table(connection: Any, schema: str | None) -> _Table:
    """Find the table.

    Raises:
        RequestError: It is not there, is there more than once, or is of no known version.
    """
    columns: dict[str, set[str]] = {}
    for name, column in connection.query(
        "SELECT n.nspname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        f" WHERE c.relname = '{TABLE}' AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition"
        " AND has_table_privilege(c.oid, 'SELECT')"
    ):
        columns.setdefault(name, set()).add(column)
    wanted = {name: found for name, found in columns.items() if schema in (None, name)}
    if not wanted:
        raise RequestError(
            f"{connection.shown} has no table {TABLE} that may be read",
            hint="name the database of the LiteLLM proxy: its DATABASE_URL",
        )
    if len(wanted) > 1:
        raise RequestError(
            f"{TABLE} is in several schemas: {', '.join(sorted(wanted))}", hint="add ?schema=NAME to the URL"
        )
    ((name, found),) = wanted.items()
    if lacking := [column for column in NEEDED if column not in found]:
        raise RequestError(
            f"{TABLE} has no column {', '.join(lacking)}: it has {', '.join(sorted(found))}",
            hint="known are the tables of LiteLLM 1.6x to 1.10x",
        )
    return _Table(name, found)


def recognises(place: str) -> bool:
    """Whether a file begins with a row of the table."""
    if is_url(place) or not place.endswith(_SUFFIXES) or not Path(place).is_file():
        return False
    try:
        with opened(Path(place), None) as stream:
            head = stream.readline(_LARGEST_HEAD)
    except BadDocument:
        return False
    if place.endswith(".csv"):
        return all(name.encode() in head for name in NEEDED)
    return all(f'"{name}"'.encode() in head for name in (*NEEDED, "proxy_server_request", "spend"))


def _fidelity() -> Mapping[str, Any]:
    stored = "with store_prompts_in_spend_logs"
    return {
        "session": kept("where the client sends litellm_session_id"),
        "prompt": kept(f"{stored}; long texts are cut"),
        "answer": kept(f"{stored}; long texts are cut"),
        "tool calls": kept(stored),
        "tool results": kept(stored),
        "tools offered": kept(stored),
        "thoughts": kept(stored),
        "images and files": kept(stored),
        "sampling settings": kept(stored),
        "cost": kept("where LiteLLM knows the price"),
        "finish reason": kept(stored),
        "tags and user": changed("a:b and a=b have a value, other tags are true"),
        **lost("sub-agents", "metrics", "comments", "task and seed", "token ids"),
    }


SOURCE = Source(
    name="litellm",
    about="spend logs of the LiteLLM proxy: its Postgres, or a JSON, JSONL or CSV file of the table",
    read=read,
    recognises=recognises,
    fidelity=_fidelity(),
)
