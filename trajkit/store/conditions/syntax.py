"""Check the syntax tree of a condition, and replace the user's names by columns.

Only the nodes on the lists below are allowed: no other table, no subquery, no file, no function that does
more than compute a value from its arguments. DuckDB bounds neither the size of texts that functions make nor
the time of a pattern, and cannot be interrupted within a function. So the size of texts and patterns is
bounded here, before the condition runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trajkit.errors import QueryError
from trajkit.store.conditions.nameable import Names, column_name, nearest
from trajkit.store.conditions.tokens import Token, at


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
    "WINDOW": "use `rank` for a rank within a group; --by defines the groups",
    "PARAMETER": "write the value itself",
    "STAR": "name a column",
}
_AGGREGATES = _words("avg count count_star max mean median min sum")
# DuckDB's parser has names for negated functions: each is replaced by `not` and the function named here
_NEGATED = {"!~~": "~~", "!~~*": "~~*", "not_like_escape": "like_escape", "not_ilike_escape": "ilike_escape"}
_COMPARING = _words("BETWEEN COMPARISON")
_PATTERNED = _words("regexp_extract regexp_full_match regexp_matches regexp_replace")
_MAKING_TEXT = _words(
    """
    || -> ->> concat concat_ws json_extract json_extract_string json_keys left list_value lower ltrim
    regexp_extract regexp_replace replace right rtrim split_part string_split substring substr trim upper
    """
)
_MOST_TEXT = 64
"""Most text that a condition may make, in multiples of the text of its columns. DuckDB holds the text of
2,048 episodes at a time: measured with 10,000 characters each, 1.7 GB in one thread."""
_COLUMN = 100
"""Characters of a constant that count as one column."""
_AS_TEXT = 8
"""Growth of a list of short texts when it is cast to text."""
_MOST_PATTERN = 500
"""Maximum characters of a pattern, repetitions written out. Measured (DuckDB 2.0.0): the slowest
pattern of 500 characters takes 1 µs per character of text, of 1,000 up to 80 µs."""
_REPEATED = re.compile(r"(\)?)\{([0-9]+)?,?([0-9]+)?\}")
_NOWHERE = {"alias": "", "query_location": 18446744073709551615, "query_location_length": 0}
_FALSE = {
    "class": "CONSTANT",
    "type": "VALUE_CONSTANT",
    **_NOWHERE,
    "literal": {"kind": "BOOLEAN", "text": "false"},
}
_FLOAT = {
    "class": "TYPE",
    "type": "TYPE",
    **_NOWHERE,
    "catalog": "",
    "schema": "",
    "type_name": "FLOAT",
    "children": [],
    "qualified_name": {"path": ["FLOAT"]},
}


class Checker:
    """Walks one syntax tree, refuses nodes that are not listed, and replaces names by columns."""

    def __init__(self, text: str, tokens: Sequence[Token], names: Names, seen: set[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._names = names
        self._seen = seen
        self._singles: set[str] = set()
        self._n_texts = 0.0

    def refuse_much_text(self) -> None:
        """Refuse a condition that builds too long texts from its columns.

        Raises:
            QueryError: It makes too much text.
        """
        if self._n_texts > _MOST_TEXT:
            raise QueryError(
                f"the condition {self._text!r} makes more than {_MOST_TEXT} times the text of its columns",
                hint="use fewer functions that make texts, such as ||, replace and lower, within each other",
            )

    def checked(self, node: dict[str, Any]) -> dict[str, Any]:
        """Return the node with columns for its names."""
        kind = node["class"]
        if kind == "COLUMN_REF":
            return self._column(node)
        if kind == "FUNCTION":
            self._function(node)
            if (positive := _NEGATED.get(str(node["function_name"]).lower())) is not None:
                renamed = {"function_name": positive, "qualified_name": {"path": [positive]}}
                return self.checked(_not({**node, **renamed}))
        elif kind == "CAST":
            self._refuse_unless(str(node["type_expr"].get("type_name", "")).upper() in _TYPES, "this type")
            if _size_factor(node) > 1 and node["child"]["class"] != "COLUMN_REF":
                self._n_texts += self._size(node)
            return {**node, "child": self.checked(node["child"])}
        elif kind == "OPERATOR":
            self._refuse_unless(node["type"] in _OPERATORS, node["type"].lower().replace("_", " "))
            if node["type"] == "COMPARE_NOT_IN":
                return self.checked(_not({**node, "type": "COMPARE_IN"}))
            if node["type"] == "OPERATOR_NOT":
                (child,) = node["children"]
                return {**node, "children": [_or_false(self.checked(child))]}
        elif kind not in _PLAIN:
            raise QueryError(
                f"{kind.lower()} is not allowed in the condition {self._text!r}", hint=_REFUSED.get(kind)
            )
        made = {name: self._within(value) for name, value in node.items()}
        is_comparing = kind in _COMPARING or node["type"] == "COMPARE_IN"
        return self._in_single_precision(made) if is_comparing else made

    def _in_single_precision(self, node: dict[str, Any]) -> dict[str, Any]:
        """Round the other side of a comparison with a column in single precision as the column was."""
        sides = {"children": node["children"]} if node["type"] == "COMPARE_IN" else node
        flat = [each for value in sides.values() for each in (value if isinstance(value, list) else [value])]
        if not any(self._is_single(each) for each in flat):
            return node
        if "children" in sides:
            return {**node, "children": [self._rounded(child) for child in node["children"]]}
        return {
            name: self._rounded(value) if isinstance(value, dict) and "class" in value else value
            for name, value in node.items()
        }

    def _is_single(self, value: Any) -> bool:
        return (
            isinstance(value, dict)
            and value.get("class") == "COLUMN_REF"
            and value["column_names"][0] in self._singles
        )

    def _rounded(self, node: dict[str, Any]) -> dict[str, Any]:
        if self._is_single(node):
            return node
        return {
            "class": "CAST",
            "type": "OPERATOR_CAST",
            **_NOWHERE,
            "child": node,
            "try_cast": False,
            "type_expr": _FLOAT,
        }

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
            if name in _PATTERNED:
                self._refuse_slow(name, node)
            if name in _MAKING_TEXT:
                self._n_texts += self._size(node)
            return
        hint = nearest(name, _FUNCTIONS)
        if name in _AGGREGATES:
            hint = "a condition sees one episode, and n, n_success, avg, best, worst and rank of its group"
        raise QueryError(f"the function {name} at {self._place(name)} is not for conditions", hint=hint)

    def _refuse_slow(self, name: str, node: dict[str, Any]) -> None:
        """Refuse a pattern that is not a constant, or may take very long."""
        pattern = _constant(_arguments(node)[1])
        if pattern is None:
            raise QueryError(f"the pattern of {name} at {self._place(name)} is not a text in quotes")
        if _pattern_size(pattern) > _MOST_PATTERN:
            raise QueryError(
                f"the pattern of {name} at {self._place(name)} is too large: it may take very long",
                hint=f"at most {_MOST_PATTERN} characters, counting each as often as {{…}} repeats it",
            )

    def _size(self, node: Any) -> float:
        """Return an upper bound of the length of this node's text, in multiples of the longest column."""
        if isinstance(node, list):
            return sum(self._size(item) for item in node)
        if not isinstance(node, dict):
            return 0
        if node.get("class") == "COLUMN_REF":
            return 1
        if (constant := _constant(node)) is not None:
            return (len(constant) + 1) / _COLUMN
        name = str(node.get("function_name", "")).lower()
        if name not in ("replace", "regexp_replace"):
            between = len(node["arguments"]) * self._size(_arguments(node)[0]) if name == "concat_ws" else 0
            return between + _size_factor(node) * sum(self._size(value) for value in node.values())
        text, old, new = _arguments(node)[:3]
        if (replacement := _constant(new)) is None:
            raise QueryError(f"the replacement of {name} at {self._place(name)} is not a text in quotes")
        is_no_longer = name == "replace" and len(replacement) <= len(_constant(old) or "")
        return (1 if is_no_longer else 1 + len(replacement)) * self._size(text)

    def _column(self, node: dict[str, Any]) -> dict[str, Any]:
        parts = [str(part) for part in node["column_names"]]
        column = self._names.column(parts)
        if column is None:
            raise self._names.missing(".".join(parts), self._place(parts[-1]))
        self._seen.add(column)
        if self._names.is_single(column):
            self._singles.add(column_name(column))
        return {**node, "column_names": [column_name(column)]}

    def _refuse_unless(self, is_good: bool, what: str) -> None:
        if not is_good:
            raise QueryError(f"{what} is not allowed in the condition {self._text!r}")

    def _place(self, name: str) -> str:
        """Return the place of a name in the user's text."""
        for token in self._tokens:
            if token.text.strip('"').lower() == name.lower():
                return at(self._text, token.position)
        return repr(self._text)


def _arguments(node: dict[str, Any]) -> list[Any]:
    """Return the arguments of a function, padded with three times None."""
    return [*(each["expression"] for each in node["arguments"]), None, None, None]


def _size_factor(node: dict[str, Any]) -> int:
    """Return the factor by which a cast may lengthen a text."""
    is_text = str(node.get("type_expr", {}).get("type_name", "")).upper() in (
        "JSON",
        "STRING",
        "TEXT",
        "VARCHAR",
    )
    return _AS_TEXT if is_text else 1


def _constant(node: Any) -> str | None:
    """Return the text of a constant; None for another node."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    return str(node["literal"].get("text", ""))


def _pattern_size(pattern: str) -> int:
    """Return an upper bound of a pattern's characters with its repetitions written out."""
    n_characters, factor = len(pattern), 1
    for is_group, least, most in _REPEATED.findall(pattern):
        n_times = max(int(least or 1), int(most or 1))
        if is_group:
            factor *= max(1, n_times)
        else:
            n_characters += n_times
    return n_characters * factor * (10 if "\\p" in pattern.lower() else 1)


def _or_false(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node that is false where the given one is null."""
    return {"class": "OPERATOR", "type": "OPERATOR_COALESCE", **_NOWHERE, "children": [node, _FALSE]}


def _not(node: dict[str, Any]) -> dict[str, Any]:
    return {"class": "OPERATOR", "type": "OPERATOR_NOT", **_NOWHERE, "children": [node]}
