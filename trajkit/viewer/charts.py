"""Compute the distributions of numbers and outcomes over the chosen episodes."""

from __future__ import annotations

from typing import Any

from trajkit.curation.statistics.intervals import wilson_bounds
from trajkit.store.layout import quoted
from trajkit.viewer.about import funnel
from trajkit.viewer.filter import Words, read_filter
from trajkit.viewer.listing import ORDERING
from trajkit.viewer.shelf import Shelf

_N_BINS = 20
_MOST_GROUPS = 50
_BY = ("task", "variant", "store", "purpose")
_WHOLE = frozenset({"n_steps", "n_invalid", "n_masked"})


def charts(shelf: Shelf, words: Words) -> dict[str, Any]:
    """Histograms, outcomes by task, variant, store and purpose, and the funnel of each store.

    Raises:
        QueryError: A parameter is unknown, or `where` is not a condition.
        RequestError: A value is invalid.
    """
    chosen = read_filter(
        {word: values for word, values in words.items() if word not in ORDERING}, shelf.index
    )
    spread = [name for name in shelf.index.numbers if name != "seed"]
    with shelf.index.held():
        condition = shelf.condition(chosen)
        ((n,),) = shelf.index.ask(f"SELECT count(*) FROM rows WHERE {condition}")
        histograms = [_histogram(shelf, name, condition) for name in spread]
        return {
            "n": n,
            "histograms": [each for each in histograms if each["n"]],
            "outcomes": [row for by in _BY for row in _outcomes(shelf, by, condition)],
            "funnel": funnel(shelf),
        }


def _histogram(shelf: Shelf, name: str, condition: str) -> dict[str, Any]:
    column = shelf.index.numbers[name]
    ((n, n_all, low, high),) = shelf.index.ask(
        f"SELECT count({column}), count(*), min({column}), max({column}) FROM rows WHERE {condition}"
    )
    found: dict[str, Any] = {"name": name, "n": n, "n_null": n_all - n, "bins": []}
    if not n:
        return found
    n_bins, width = _bins(name, low, high)
    counted = shelf.index.ask(
        f"SELECT store, least({n_bins - 1}, CAST(floor(({column} - {low!r}) / {width!r}) AS BIGINT)) AS bin, "
        f"count(*) FROM rows WHERE {condition} AND {column} IS NOT NULL GROUP BY ALL"
    )
    by_store = [[0] * len(shelf.stores) for _ in range(n_bins)]
    for store, place, count in counted:
        by_store[place][store] += count
    found["bins"] = [
        {
            "low": low + place * width,
            "high": high if place == n_bins - 1 and name not in _WHOLE else low + (place + 1) * width,
            "n": sum(counts),
            "by_store": counts,
        }
        for place, counts in enumerate(by_store)
    ]
    return found


def _bins(name: str, low: float, high: float) -> tuple[int, float]:
    """Return the number and width of the bars; for whole numbers the width is a whole number."""
    if high == low:
        return 1, 1.0
    if name in _WHOLE:
        width = -(-(int(high) - int(low) + 1) // _N_BINS)
        return -(-(int(high) - int(low) + 1) // width), float(width)
    return _N_BINS, (high - low) / _N_BINS


def _outcomes(shelf: Shelf, by: str, condition: str) -> list[dict[str, Any]]:
    """Return the largest groups; success is the share of judged episodes, with Wilson's interval."""
    found = shelf.index.ask(
        f"SELECT value, outcomes, n, n_success, n_judged FROM (SELECT {quoted(by)} AS value, "
        "histogram(outcome) AS outcomes, count(*) AS n, count(*) FILTER (outcome = 'success') AS n_success, "
        "count(*) FILTER (outcome IN ('success', 'failure', 'truncated')) AS n_judged "
        f"FROM rows WHERE {condition} GROUP BY 1) ORDER BY n DESC, value LIMIT {_MOST_GROUPS}"
    )
    groups = []
    for value, outcomes, n, n_success, n_judged in found:
        low, high = wilson_bounds(n_success / n_judged, n_judged) if n_judged else (None, None)
        success = {"value": n_success / n_judged, "low": low, "high": high} if n_judged else None
        groups.append({"by": by, "value": value, "n": n, "counts": outcomes, "success": success})
    return groups
