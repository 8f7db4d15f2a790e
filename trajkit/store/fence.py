"""Connections for a user's SQL: they reach one store's folder, and run one SELECT that only reads.

Two walls, because one is not enough. DuckDB keeps file access inside the folder but allows writing there, and
to its parser `WITH x AS (COPY …) SELECT` is a SELECT: so the syntax tree is also checked for anything that
does more than read.
"""

from __future__ import annotations

from typing import Any

import duckdb

from trajkit.errors import QueryError
from trajkit.store.engine import connect, file_literal, literal, parser, syntax_tree, too_deep
from trajkit.store.reader import Store, verify
from trajkit.store.view import create_views

_READING_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_FUNCTIONS = frozenset(
    {"generate_series", "generate_subscripts", "json_each", "json_tree", "range", "repeat", "unnest"}
)
_MOST_SPILLED = "20GB"  # by default nine tenths of the disk
_ONE_SELECT = "one SELECT over episodes, steps, feedback and steps_full"


def fenced(
    store: Store, *, memory_limit: str | None = None, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection with the views `episodes`, `steps`, `feedback`, `steps_full`, and nothing else in reach.

    The store's checksums are verified first. A user's SQL goes through `check_select` before it runs.

    Args:
        store: The store that the views show.
        memory_limit: Such as `1GB`; None leaves DuckDB's own.
        threads: None for one per core.

    Raises:
        StoreError: A part is missing or changed.
    """
    verify(store)
    connection = connect(memory_limit=memory_limit, threads=threads)
    create_views(connection, store)
    connection.execute(f"SET max_temp_directory_size = {literal(_MOST_SPILLED)}")
    folders = f"[{literal(str(store.path))}, {file_literal(store.path)}]"  # the views name it as a pattern
    connection.execute(f"SET allowed_directories = {folders}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def check_select(text: str) -> str:
    """A user's SQL, if it is one statement that only reads.

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
        raise QueryError(f"{len(tree['statements'])} statements where one SELECT is wanted", hint=_ONE_SELECT)
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
            raise QueryError(f"the table function {name} is not open to queries", hint=_ONE_SELECT)
    for value in node.values():
        _refuse_more_than_reading(value)
