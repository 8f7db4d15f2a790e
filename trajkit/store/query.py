"""Run a user's SQL on a store behind a fence: it can read only the store's folder, and change nothing.

There are two checks, because one is not enough. DuckDB restricts file access to the folder but allows writing
there, and its parser takes `WITH x AS (COPY …) SELECT` for a SELECT: so the syntax tree is also checked for
anything that does more than read. The error for a misspelt name suggests the nearest names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from trajkit._core.address import Address, spelled
from trajkit.errors import QueryError, StoreError
from trajkit.store.conditions.nameable import nearest
from trajkit.store.damage import damage
from trajkit.store.engine import (
    MEMORY_LIMIT,
    TimeLimit,
    connect,
    file_literal,
    first_line,
    interruptible,
    literal,
    parser,
    syntax_tree,
    too_deep,
)
from trajkit.store.layout import METRICS, TABLES
from trajkit.store.reader import Store, verify
from trajkit.store.view import columns_of, create_views

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
_READING_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_FUNCTIONS = frozenset(
    {"generate_series", "generate_subscripts", "json_each", "json_tree", "range", "repeat", "unnest"}
)
_MOST_SPILLED = "20GB"  # by default nine tenths of the disk
_ONE_SELECT = "one SELECT over episodes, steps, feedback and steps_full"


@dataclass(frozen=True)
class Answer:
    """The columns of an answer; its rows are read lazily."""

    columns: tuple[str, ...]
    """Names, in order."""
    is_number: tuple[bool, ...]
    """Whether each is a number."""
    is_json: tuple[bool, ...]
    """Whether each is JSON text."""
    batches: Iterator[pa.RecordBatch]
    """The rows in columns; to be read inside the block of `ask`."""

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as Python values."""
        for batch in self.batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@contextlib.contextmanager
def ask(
    store: Store,
    sql: str,
    *,
    limit_s: float | None = None,
    memory_limit: str = MEMORY_LIMIT,
    threads: int | None = None,
) -> Iterator[Answer]:
    """Run one SELECT over `episodes`, `steps`, `feedback` and `steps_full`; rows stream inside the block.

    Args:
        store: The store.
        sql: One SELECT. It can read the store and nothing else, and change nothing.
        limit_s: Seconds that the query may run, without the time that the block takes for its rows; None for
            no limit.
        memory_limit: Such as `1GB`.
        threads: None for one per core.

    Raises:
        QueryError: It is not one SELECT that only reads, uses an unknown name, or takes too long.
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
        store: The store.
        connections: The connections that the block uses, for Ctrl-C.

    Raises:
        QueryError: The SQL uses an unknown name, or cannot be computed.
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
    """Return the metrics of episodes that no column is named like, so that they need no `metrics.`."""
    columns = {column.name.lower() for column in columns_of(store, "episodes")}
    return [m.name for m in store.manifest.metrics if m.level == "episode" and m.name.lower() not in columns]


def _explained(store: Store, error: Exception) -> QueryError:
    text = str(error)
    for pattern in _MISSPELT:
        if found := pattern.search(text):
            return QueryError(
                f"no column {found[1]!r} in {store.path}", hint=nearest(found[1], _column_names(store))
            )
    if found := _NO_TABLE.search(text):
        name = found[1].strip("\"'")
        return QueryError(f"no table {name!r} in {store.path}", hint=nearest(name, [*TABLES, "steps_full"]))
    lines = [line for line in text.splitlines() if line.startswith("Did you mean")]
    return QueryError(first_line(error), hint=lines[0] if lines else None)


def _column_names(store: Store) -> list[str]:
    names = dict.fromkeys(m.name for m in store.manifest.metrics)
    for table in (*TABLES, "steps_full"):
        names.update(dict.fromkeys(column.name for column in columns_of(store, table)))
    return [name for name in names if name != METRICS]


def fenced(
    store: Store, *, memory_limit: str = MEMORY_LIMIT, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """Open a connection with the views `episodes`, `steps`, `feedback` and `steps_full`, and no other data.

    The store's checksums are verified first. A user's SQL must pass `check_select` before it runs.

    Args:
        store: The store.
        memory_limit: Such as `1GB`.
        threads: None for one per core.

    Raises:
        StoreError: A part is missing or changed.
    """
    verify(store)
    connection = connect(memory_limit=memory_limit, threads=threads)
    create_views(connection, store)
    connection.execute(f"SET max_temp_directory_size = {literal(_MOST_SPILLED)}")
    folders = [literal(str(store.path)), file_literal(store.path)]  # the views name it as a pattern
    if isinstance(store.path, Address):
        folders.append(literal(spelled(store.path)))
    connection.execute(f"SET allowed_directories = [{', '.join(folders)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def check_select(text: str) -> str:
    """Return a user's SQL if it is one statement that only reads.

    Raises:
        QueryError: It is not SQL, more than one statement, or does more than read the store.
    """
    with parser() as connection:
        tree = syntax_tree(connection, text)
    if tree.get("error"):
        if tree.get("error_type") == "parser":
            raise QueryError(f"not valid SQL: {tree['error_message']}")
        raise QueryError("this is not a SELECT", hint=_ONE_SELECT)
    if len(tree["statements"]) != 1:
        raise QueryError(f"{len(tree['statements'])} statements instead of one SELECT", hint=_ONE_SELECT)
    try:
        _refuse_more_than_reading(tree["statements"][0])
    except RecursionError:
        raise too_deep() from None
    return text.strip().rstrip(";")


def _refuse_more_than_reading(node: Any) -> None:
    if isinstance(node, list):
        for item in node:
            _refuse_more_than_reading(item)
        return
    if not isinstance(node, dict):
        return
    kind = str(node.get("type", ""))
    if kind.endswith("_NODE") and kind not in _READING_NODES:
        raise QueryError(f"{kind.split('_')[0]} does more than read", hint=_ONE_SELECT)
    if kind == "TABLE_FUNCTION":
        name = str(node["function"].get("function_name", "")).lower()
        if name not in _TABLE_FUNCTIONS:
            raise QueryError(f"the table function {name} is not allowed in queries", hint=_ONE_SELECT)
    for value in node.values():
        _refuse_more_than_reading(value)
