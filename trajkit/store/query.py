"""Query a store with SQL, and suggest the nearest names when one is misspelt."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from trajkit.errors import QueryError, StoreError
from trajkit.store.damage import damage
from trajkit.store.engine import TimeLimit, first_line, interruptible
from trajkit.store.fence import check_select, fenced
from trajkit.store.layout import METRICS, TABLES
from trajkit.store.reader import Store
from trajkit.store.view import columns_of

_ROWS_PER_BATCH = 1024
_MISSPELT = (
    re.compile(r'Referenced column "([^"]+)" not found'),
    re.compile(r'does not have a column named "([^"]+)"'),
    re.compile(r'Could not find key "([^"]+)" in struct'),
)
_NO_TABLE = re.compile(r"Table with name (\S+) does not exist")
_READ_FAILURES = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.InternalException,
    MemoryError,
)


@dataclass(frozen=True)
class Answer:
    """The columns of an answer; its rows come as they are read."""

    columns: tuple[str, ...]
    """Names, in order."""
    is_number: tuple[bool, ...]
    """Which of them are numbers."""
    is_json: tuple[bool, ...]
    """Which of them hold JSON text."""
    batches: Iterator[pa.RecordBatch]
    """The rows, by columns; to be read inside the block of `ask`."""

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows as Python values."""
        for batch in self.batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@contextlib.contextmanager
def ask(
    store: Store,
    sql: str,
    *,
    limit_s: float | None = None,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Iterator[Answer]:
    """Run one SELECT over `episodes`, `steps`, `feedback` and `steps_full`; rows stream inside the block.

    Args:
        store: The store that is queried.
        sql: One SELECT. It can reach the store and nothing else, and change nothing.
        limit_s: Seconds that the query may run, what is done with its rows not counted; None for no limit.
        memory_limit: Such as `1GB`; None leaves DuckDB's own.
        threads: None for one per core.

    Raises:
        QueryError: It is not one SELECT that reads, names what is not there, or takes too long.
        StoreError: The store is damaged, or memory ran out.
    """
    text = check_select(sql)
    with (
        fenced(store, memory_limit=memory_limit, threads=threads) as connection,
        explaining(store, connection),
    ):
        limit = TimeLimit(limit_s, connection, what="the query", hint="allow more with --timeout SECONDS")
        with limit.counting():
            relation = connection.sql(text)
            if relation is None:
                raise QueryError("this is not a SELECT")
            kinds = [str(kind) for kind in relation.types]
            reader = relation.to_arrow_reader(_ROWS_PER_BATCH)
        try:
            yield Answer(
                columns=tuple(relation.columns),
                is_number=tuple(
                    kind.endswith(("INT", "INTEGER", "DOUBLE", "FLOAT")) or "DECIMAL" in kind
                    for kind in kinds
                ),
                is_json=tuple(kind == "JSON" for kind in kinds),
                batches=_counted(reader, limit),
            )
        finally:
            reader.close()


def _counted(reader: pa.RecordBatchReader, limit: TimeLimit) -> Iterator[pa.RecordBatch]:
    while True:
        with limit.counting():
            batch = next(reader, None)
        if batch is None:
            return
        yield batch


@contextlib.contextmanager
def explaining(store: Store, *connections: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Translate DuckDB's errors about a user's SQL into a `QueryError` that suggests the nearest names.

    Args:
        store: The store that is queried.
        connections: The connections that the block uses, for Ctrl-C.

    Raises:
        QueryError: The SQL names what is not there, or cannot be computed.
        StoreError: The store's files could not be read, or memory ran out.
    """
    try:
        with interruptible(*connections):
            yield
    except _READ_FAILURES as error:
        is_memory = isinstance(error, duckdb.OutOfMemoryException | MemoryError)
        hint = "ask for less at a time, or allow more memory" if is_memory else None
        raise StoreError(
            f"{store.path} could not be read: {first_line(error) or 'memory ran out'}", hint=hint
        ) from error
    except (duckdb.Error, pa.ArrowException) as error:
        is_of_data = any(word in str(error) for word in ("JSON", "Parquet"))
        if is_of_data and (found := damage(store)) is not None:
            raise found from error
        raise _explained(store, error) from error


def metric_names(store: Store) -> list[str]:
    """The metrics of episodes that a filter may name without `metrics.`: those no column is named like."""
    columns = {column.name.lower() for column in columns_of(store, "episodes")}
    return [m.name for m in store.manifest.metrics if m.level == "episode" and m.name.lower() not in columns]


def _explained(store: Store, error: Exception) -> QueryError:
    text = str(error)
    for pattern in _MISSPELT:
        if found := pattern.search(text):
            return QueryError(
                f"no column {found[1]!r} in {store.path}", hint=_nearest(found[1], _column_names(store))
            )
    if found := _NO_TABLE.search(text):
        name = found[1].strip("\"'")
        return QueryError(f"no table {name!r} in {store.path}", hint=_nearest(name, [*TABLES, "steps_full"]))
    lines = [line for line in text.splitlines() if line.startswith("Did you mean")]
    return QueryError(first_line(error), hint=lines[0] if lines else None)


def _column_names(store: Store) -> list[str]:
    names = dict.fromkeys(m.name for m in store.manifest.metrics)
    for table in (*TABLES, "steps_full"):
        names.update(dict.fromkeys(column.name for column in columns_of(store, table)))
    return [name for name in names if name != METRICS]


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    return f"nearest: {', '.join(near)}" if near else f"there are: {', '.join(names)}"
