"""Conditions that a user writes: parsed by DuckDB, checked word by word, and written anew from the tree.

What is not on the lists below does not pass: no other table, no subquery, no file, no function that does more
than compute a value from its arguments.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from trajkit.curate.tokens import Token, as_sql, at, tokens_of
from trajkit.errors import QueryError
from trajkit.store.engine import first_line


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTIONS = _words(
    """
    + - * / // % ** ^ || ~~ !~~ ~~* !~~* -> ->>
    abs ceil ceiling exp floor greatest isfinite isinf isnan least ln log log10 log2 mod pow power round sign
    sqrt trunc
    concat concat_ws contains ends_with ilike_escape left length len like_escape lower ltrim not_like_escape
    position prefix regexp_extract regexp_full_match regexp_matches regexp_replace replace right rtrim
    split_part starts_with string_split strlen strpos substring substr suffix trim upper
    array_contains array_has array_has_all array_has_any array_length list_contains list_has list_has_all
    list_has_any list_max list_min list_position list_sum list_value
    json_array_length json_exists json_extract json_extract_string json_keys json_type
    date_diff date_part date_trunc day dayofweek epoch hour minute month second timezone to_days to_hours
    to_minutes to_months to_seconds to_weeks to_years year
    coalesce if ifnull nullif
    """
)
_TYPES = _words(
    "BIGINT BOOL BOOLEAN DATE DECIMAL DOUBLE FLOAT HUGEINT INT INTEGER INTERVAL JSON NUMERIC REAL SMALLINT "
    "STRING TEXT TIME TIMESTAMP TIMESTAMPTZ TINYINT UBIGINT UINTEGER VARCHAR"
) | {"TIMESTAMP WITH TIME ZONE"}
_OPERATORS = frozenset(
    {
        "ARRAY_EXTRACT",
        "ARRAY_SLICE",
        "COMPARE_IN",
        "COMPARE_NOT_IN",
        "OPERATOR_COALESCE",
        "OPERATOR_IS_NOT_NULL",
        "OPERATOR_IS_NULL",
        "OPERATOR_NOT",
        "OPERATOR_NULLIF",
    }
)
_PLAIN = _words("BETWEEN CASE COMPARISON CONJUNCTION CONSTANT")
_REFUSED = {
    "SUBQUERY": "a condition reads one episode at a time: it has no SELECT in it",
    "WINDOW": "for a rank within a group there is `rank`; --by says what a group is",
    "PARAMETER": "write the value itself",
    "STAR": "name a column",
}
_AGGREGATES = _words("avg count count_star max mean median min sum")


class Expression(NamedTuple):
    """A condition that has been checked."""

    text: str
    """As it was written."""
    sql: str
    """The same as SQL, over a relation with the columns `names`; no word of the text stands in it unread."""
    names: tuple[str, ...]
    """The columns it needs, sorted."""


class Names:
    """What a condition may name.

    Args:
        plain: Every name that stands by itself, to the column it means.
        patterns: What a name may also look like; it is then the column of that name.
        prefixes: Names with something after them, such as `tags`, to what may follow.
        where: Of what, for messages, such as the store's path.
    """

    def __init__(
        self,
        plain: Mapping[str, str],
        *,
        patterns: Sequence[re.Pattern[str]] = (),
        prefixes: Mapping[str, Mapping[str, str]] | None = None,
        where: str,
    ) -> None:
        self._plain = {name.lower(): column for name, column in plain.items()}
        self._patterns = patterns
        self._prefixes = {
            prefix: {name.lower(): column for name, column in columns.items()}
            for prefix, columns in (prefixes or {}).items()
        }
        self.where = where
        self._known = [
            *plain,
            *(f"{prefix}.{name}" for prefix, each in (prefixes or {}).items() for name in each),
        ]

    def column(self, parts: list[str]) -> str | None:
        """The column that a name stands for, whatever its case; None when there is none."""
        if len(parts) == 1:
            name = parts[0].lower()
            is_like = any(pattern.fullmatch(name) for pattern in self._patterns)
            return self._plain.get(name, name if is_like else None)
        return self._prefixes.get(parts[0].lower(), {}).get(".".join(parts[1:]).lower())

    def missing(self, name: str, place: str) -> QueryError:
        """The error that says which names are near."""
        return QueryError(f"no column {name!r} in {self.where} ({place})", hint=nearest(name, self._known))


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the names that look alike, else with all of them."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.6)
    if near:
        return f"nearest: {', '.join(by_lower[each] for each in near)}"
    return f"there are: {', '.join(by_lower.values())}" if by_lower else "there is none"


def parse(text: str, names: Names) -> Expression:
    """Read a condition.

    It is an SQL expression in which comparisons may be chained (`0 < avg < 1`) and `pass@4` is a name.

    Args:
        text: What the user wrote.
        names: What it may name.

    Raises:
        QueryError: It is not one expression, names what is not there, or asks for more than a value.
    """
    tokens = tokens_of(text)
    sql = as_sql(tokens)
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        tree = _tree(connection, sql, text)
        seen: set[str] = set()
        node = _Checker(text, tokens, names, seen).checked(_only_expression(tree, text))
        tree["statements"][0]["node"]["select_list"] = [node]
        (written,) = connection.execute(
            "SELECT json_deserialize_sql(CAST(? AS JSON))", [json.dumps(tree)]
        ).fetchone() or ("",)
    return Expression(text, f"({str(written).removeprefix('SELECT ')})", tuple(sorted(seen)))


def require_boolean(expression: Expression, connection: duckdb.DuckDBPyConnection, relation: str) -> None:
    """Bind a condition without reading anything.

    Raises:
        QueryError: Its types do not fit, or what it gives is not a yes or no.
    """
    try:
        described = connection.sql(f"SELECT {expression.sql} AS condition FROM {relation} LIMIT 0")
    except duckdb.Error as error:
        raise QueryError(f"{expression.text!r} cannot be computed: {first_line(error)}") from error
    kind = str(described.types[0])
    if kind not in ("BOOLEAN", '"NULL"'):
        raise QueryError(
            f"{expression.text!r} gives a {kind}, not a yes or no", hint="compare it with something: … > 0"
        )


def _tree(connection: duckdb.DuckDBPyConnection, sql: str, text: str) -> dict[str, Any]:
    found = connection.execute(
        "SELECT json_serialize_sql(CAST(? AS VARCHAR))", [f"SELECT ({sql}\n)"]
    ).fetchone()
    tree: dict[str, Any] = json.loads(found[0]) if found else {}
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        said = str(tree.get("error_message", "")).splitlines()
        raise QueryError(f"{text!r} is not a condition: {said[0] if said else 'not one expression'}")
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


class _Checker:
    """Walks one syntax tree: refuses what is not listed, and puts columns in the place of names."""

    def __init__(self, text: str, tokens: list[Token], names: Names, seen: set[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._names = names
        self._seen = seen

    def checked(self, node: dict[str, Any]) -> dict[str, Any]:
        """The node with the columns that its names stand for."""
        kind = node["class"]
        if kind == "COLUMN_REF":
            return self._column(node)
        if kind == "FUNCTION":
            self._function(node)
        elif kind == "CAST":
            self._refuse_unless(str(node["type_expr"].get("type_name", "")).upper() in _TYPES, "this type")
            return {**node, "child": self.checked(node["child"])}
        elif kind == "OPERATOR":
            self._refuse_unless(node["type"] in _OPERATORS, node["type"].lower().replace("_", " "))
        elif kind not in _PLAIN:
            raise QueryError(
                f"{kind.lower()} has no place in the condition {self._text!r}", hint=_REFUSED.get(kind)
            )
        return {name: self._within(value) for name, value in node.items()}

    def _within(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._within(item) for item in value]
        if isinstance(value, dict):
            return self.checked(value) if "class" in value else {k: self._within(v) for k, v in value.items()}
        return value

    def _function(self, node: dict[str, Any]) -> None:
        name = str(node["function_name"]).lower()
        is_bare = node["qualified_name"]["path"] == [node["function_name"]]
        if name in _FUNCTIONS and is_bare and not node["filter"] and not node["distinct"]:
            return
        hint = nearest(name, _FUNCTIONS)
        if name in _AGGREGATES:
            hint = (
                "a condition sees one episode; of its group there are n, n_success, avg, best, worst and rank"
            )
        raise QueryError(f"the function {name} at {self._place(name)} is not open to conditions", hint=hint)

    def _column(self, node: dict[str, Any]) -> dict[str, Any]:
        parts = [str(part) for part in node["column_names"]]
        column = self._names.column(parts)
        if column is None:
            raise self._names.missing(".".join(parts), self._place(parts[-1]))
        self._seen.add(column)
        return {**node, "column_names": [column]}

    def _refuse_unless(self, is_good: bool, what: str) -> None:
        if not is_good:
            raise QueryError(f"{what} has no place in the condition {self._text!r}")

    def _place(self, name: str) -> str:
        """Where a name stands in what the user wrote."""
        for token in self._tokens:
            if token.text.strip('"').lower() == name.lower():
                return at(self._text, token.position)
        return repr(self._text)
