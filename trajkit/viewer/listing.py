"""Return the list of episodes: one page of it, and the number of episodes with each facet value."""

from __future__ import annotations

from typing import Any

from trajkit.store.layout import quoted
from trajkit.viewer.filter import Filter, Words, order, read_filter, whole
from trajkit.viewer.index import FACETS, Index
from trajkit.viewer.shelf import Shelf

MOST_ROWS = 500
"""Maximum rows per page of the list."""
_MOST_VALUES = 200


def episodes(shelf: Shelf, words: Words) -> dict[str, Any]:
    """Return a page of the list, the number of episodes, and the numbers by facet value.

    Raises:
        QueryError: A parameter is unknown, or `where` is not a condition.
        RequestError: A value is invalid.
    """
    chosen = read_filter(words, shelf.index)
    offset, limit = whole(words, "offset", 0), whole(words, "limit", 100, most=MOST_ROWS)
    sorting = order(words, shelf.index)
    with shelf.index.held():
        condition = shelf.condition(chosen)
        ((total,),) = shelf.index.ask(f"SELECT count(*) FROM rows WHERE {condition}")
        return {
            "total": total,
            "offset": offset,
            "rows": _page(shelf.index, condition, sorting, f"LIMIT {limit} OFFSET {offset}"),
            "facets": facets(shelf, chosen),
            "notes": shelf.notes(chosen),
            "is_read": shelf.is_read,
        }


def _page(index: Index, condition: str, sorting: str, cut: str) -> list[dict[str, Any]]:
    """Return the rows of a page. It sorts their numbers first, because sorting whole rows is much slower."""
    found = index.ask(f"SELECT n FROM rows WHERE {condition} ORDER BY {sorting} {cut}")
    numbers = ", ".join(str(n) for (n,) in found)
    return rows(index, f"n IN ({numbers})", f"ORDER BY {sorting}") if found else []


def rows(index: Index, condition: str, rest: str = "") -> list[dict[str, Any]]:
    """Return rows of the list in the page's form."""
    names = ", ".join([*map(quoted, index.shown), *(metric.column for metric in index.metrics)])
    return [_row(index, values) for values in index.ask(f"SELECT {names} FROM rows WHERE {condition} {rest}")]


def facets(shelf: Shelf, chosen: Filter) -> dict[str, list[dict[str, Any]]]:
    """Count the episodes of each facet value; a facet's counts ignore the choice from that facet."""
    counted = {}
    for name in FACETS:
        found = shelf.index.ask(
            f"SELECT {quoted(name)}, count(*) FROM rows WHERE {shelf.condition(chosen, besides=name)} "
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MOST_VALUES}"
        )
        counted[name] = [{"value": value, "n": n} for value, n in found]
    return counted


def _row(index: Index, values: tuple[Any, ...]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(index.shown, values, strict=False))
    row["tokens"] = {"input": row.pop("n_input_tokens"), "output": row.pop("n_output_tokens")}
    row["metrics"] = {
        metric.name: bool(value) if metric.is_boolean and value is not None else value
        for metric, value in zip(index.metrics, values[len(index.shown) :], strict=True)
    }
    return row
