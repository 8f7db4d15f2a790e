"""Translate a dotted path of names from a request into DuckDB's spelling."""

from __future__ import annotations

from trajkit.errors import QueryError


def json_path(dotted: str) -> str:
    """`state.text` as `."state"."text"`: every name quoted, so that none is taken for an operator.

    Raises:
        QueryError: It is not names joined by dots.
    """
    names = dotted.split(".")
    if "" in names or '"' in dotted:
        raise QueryError(f"the path {dotted!r} is not names joined by dots")
    return "".join(f'."{name}"' for name in names)
