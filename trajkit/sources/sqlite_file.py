"""Open an SQLite database of another program for reading, by path or by URL (`sqlite:///PATH`)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from trajkit._core.outside import regular_file
from trajkit.errors import DataError, RequestError
from trajkit.formats.reading.document import BadDocument, shown

_SCHEME = "sqlite:///"
_MAGIC = b"SQLite format 3\x00"


def path_of(place: str) -> Path | None:
    """Return the file of a path or of an `sqlite:///` URL; None for another URL."""
    if place.startswith(_SCHEME):
        return Path(unquote(place.removeprefix(_SCHEME).partition("?")[0]))
    return None if "://" in place else Path(place)


def options_of(place: str) -> dict[str, str]:
    """Return the query parameters of a URL, by name; empty for a path."""
    return dict(parse_qsl(urlsplit(place).query)) if "://" in place else {}


def has_tables(place: str, *names: str) -> bool:
    """Whether a path or URL is an SQLite database with these tables."""
    path = path_of(place)
    try:
        if path is None or not path.is_file():
            return False
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
        with database(place) as connection:
            return columns_of(connection).keys() >= {*names}
    except (OSError, DataError, RequestError):
        return False


@contextmanager
def database(place: str) -> Iterator[sqlite3.Connection]:
    """Open a database so that nothing in it can change.

    Raises:
        RequestError: There is no such file.
        DataError: It is not a database, or damaged.
    """
    path = path_of(place)
    assert path is not None
    if not path.exists():
        raise RequestError(f"there is no file {path}")
    regular_file(path, error=RequestError)
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection
    except sqlite3.Error as error:
        raise DataError(
            f"{path} cannot be read: {error}", hint="is it a complete SQLite database?"
        ) from error


def check_columns(
    columns: Mapping[str, frozenset[str]], needed: Mapping[str, set[str]], *, other: str, hint: str
) -> None:
    """Refuse a database that lacks a table or a column.

    Raises:
        DataError: It lacks one; `other` describes a database without one of the tables.
    """
    for table, names in needed.items():
        if table not in columns:
            raise DataError(f"no table {table}: this is {other}", hint=hint)
        if missing := names - columns[table]:
            raise DataError(f"the table {table} has no column {', '.join(sorted(missing))}", hint=hint)


def json_cell(text: Any, where: str) -> Any:
    """Return the value of a cell that contains JSON.

    Raises:
        BadDocument: It contains something else.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise BadDocument("not JSON", where, shown(text)) from None


def columns_of(connection: sqlite3.Connection) -> Mapping[str, frozenset[str]]:
    """Return the columns of each table."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        name: frozenset(
            column for (column,) in connection.execute("SELECT name FROM pragma_table_xinfo(?)", (name,))
        )
        for (name,) in names
    }
