"""Parse a user's conditions with DuckDB, check every word, and generate SQL from the syntax tree.

A comparison with a missing value is false, and `not` inverts that: `x > 1`, `x <= 1` and `x != 1` leave out
an episode without x; `not x > 1` and `x not in (1, 2)` keep it.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import duckdb

from trajkit.errors import QueryError
from trajkit.store.conditions.nameable import Names
from trajkit.store.conditions.syntax import Checker
from trajkit.store.conditions.tokens import Token, as_sql, tokens_of
from trajkit.store.engine import first_line, parser, syntax_tree, too_deep

_DIRECTIONS = {"asc": False, "desc": True}


class Expression(NamedTuple):
    """A checked condition."""

    text: str
    """As the user wrote it."""
    sql: str
    """The generated SQL, over a relation with a column `column_name(name)` for each of `names`. It contains
    no unchecked word of the text."""
    names: tuple[str, ...]
    """The columns it needs, sorted."""


class Order(NamedTuple):
    """One expression to sort by."""

    expression: Expression
    is_descending: bool

    @property
    def sql(self) -> str:
        """The ORDER BY clause; missing values come last."""
        return f"{self.expression.sql} {'DESC' if self.is_descending else 'ASC'} NULLS LAST"


def parse(text: str, names: Names) -> Expression:
    """Parse and check a condition.

    It is an SQL expression in which comparisons may be chained (`0 < avg < 1`) and `pass@4` is a name. Its
    length, its depth, its patterns and the size of texts that it makes are bounded (`syntax.py`), so that its
    cost grows no faster than the number of episodes.

    Args:
        text: The user's text.
        names: The names that it may use.

    Raises:
        QueryError: It is not one expression, uses an unknown name, or something that is not allowed.
    """
    tokens = tokens_of(text)
    sql = as_sql(tokens)
    seen: set[str] = set()
    with parser() as connection:
        try:
            tree = _tree(connection, sql, text)
            checker = Checker(text, tokens, names, seen)
            node = checker.checked(_only_expression(tree, text))
            checker.refuse_much_text()
            tree["statements"][0]["node"]["select_list"] = [node]
            ((written,),) = connection.execute(
                "SELECT json_deserialize_sql(CAST(? AS JSON))", [json.dumps(tree)]
            ).fetchall()
        except (RecursionError, duckdb.ParserException):
            raise too_deep() from None
    return Expression(text, f"({str(written).removeprefix('SELECT ')})", tuple(sorted(seen)))


def parse_order(text: str, names: Names) -> tuple[Order, ...]:
    """Parse what to sort by: expressions separated by commas, each optionally followed by `desc` or `asc`.

    Args:
        text: The user's text, such as `episode_return desc, n_steps`.
        names: The names that it may use.

    Raises:
        QueryError: One of them is not an expression, or uses an unknown name.
    """
    found: list[Order] = []
    for piece in _pieces(text):
        direction = piece[-1].text.lower() if len(piece) > 1 else ""
        words = piece[:-1] if direction in _DIRECTIONS else piece
        if not words:
            raise QueryError(f"{text!r} has nothing to sort by between two commas")
        expression = parse(text[words[0].position : words[-1].position + len(words[-1].text)], names)
        found.append(Order(expression, _DIRECTIONS.get(direction, False)))
    return tuple(found)


def _pieces(text: str) -> list[list[Token]]:
    """Split the words at top-level commas."""
    pieces: list[list[Token]] = [[]]
    depth = 0
    for token in tokens_of(text):
        depth += (token.kind == "open") - (token.kind == "close")
        if token.text == "," and depth == 0:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


def require_boolean(expression: Expression, connection: duckdb.DuckDBPyConnection, relation: str) -> None:
    """Bind a condition without reading anything.

    Raises:
        QueryError: Its types do not fit, or it is not boolean.
    """
    try:
        described = connection.sql(f"SELECT {expression.sql} AS condition FROM {relation} LIMIT 0")
    except duckdb.Error as error:
        raise QueryError(f"{expression.text!r} cannot be computed: {first_line(error)}") from error
    kind = str(described.types[0])
    if kind not in ("BOOLEAN", '"NULL"'):
        raise QueryError(
            f"{expression.text!r} gives a {kind}, not a boolean", hint="compare it with something: … > 0"
        )


def _tree(connection: duckdb.DuckDBPyConnection, sql: str, text: str) -> dict[str, Any]:
    tree = syntax_tree(connection, f"SELECT ({sql}\n)")
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        lines = str(tree.get("error_message", "")).splitlines()
        raise QueryError(f"{text!r} is not a condition: {lines[0] if lines else 'not one expression'}")
    return tree


def _only_expression(tree: dict[str, Any], text: str) -> dict[str, Any]:
    node = tree["statements"][0]["node"]
    if (
        node.get("type") != "SELECT_NODE"
        or node["from_table"]["type"] != "EMPTY"
        or len(node["select_list"]) != 1
    ):
        raise QueryError(f"{text!r} is not one expression")
    expression: dict[str, Any] = node["select_list"][0]
    return expression
