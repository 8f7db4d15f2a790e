"""Describe the stores of a page, how they were made, and how their numbers and outcomes are distributed."""

from __future__ import annotations

from typing import Any

import trajkit
from trajkit.curation.statistics.intervals import wilson_bounds
from trajkit.schema import FeedbackKind, Left, LineageEntry
from trajkit.store.layout import quoted
from trajkit.store.tally import command_of
from trajkit.viewer.filter import Filter, Words, read_filter, refuse_others, sortable
from trajkit.viewer.index import FACETS, IndexedMetric, Shelved
from trajkit.viewer.listing import facets
from trajkit.viewer.shelf import Shelf

_N_BINS = 20
_MOST_GROUPS = 50
_BY = ("task", "variant", "store", "purpose")
_WHOLE = frozenset({"n_steps", "n_invalid", "n_masked"})


def stores(shelf: Shelf, words: Words) -> dict[str, Any]:
    """Return the stores, their facets and metrics, and the columns to sort by.

    Raises:
        QueryError: The request has a parameter; there is none.
    """
    refuse_others(words)
    return {
        "stores": [_store(one) for one in shelf.stores],
        "facets": facets(shelf, Filter({})),
        "metrics": [_metric(shelf, metric) for metric in shelf.index.metrics],
        "columns": sortable(shelf.index),
        "n_values": {
            name: shelf.index.ask(f"SELECT count(DISTINCT {quoted(name)}) FROM rows")[0][0] for name in FACETS
        },
        "version": trajkit.__version__,
    }


def funnel(shelf: Shelf) -> list[dict[str, Any]]:
    """Return the stages from each store's source to its content, with the reasons for exclusions."""
    return [
        {"store": one.number, "stages": [*_stages(one.store.manifest.lineage), _here(shelf, one)]}
        for one in shelf.stores
    ]


def _store(one: Shelved) -> dict[str, Any]:
    manifest = one.store.manifest
    return {
        "name": one.name,
        "digest": manifest.digest,
        "kind": manifest.kind,
        "split": manifest.split,
        "n_episodes": manifest.counts.n_episodes,
        "n_steps": manifest.counts.n_steps,
        "created": manifest.created_at.isoformat(),
        "commands": [command_of(entry) for entry in manifest.lineage],
        "tally": [each for entry in manifest.lineage for each in _left(entry.left)],
    }


def _metric(shelf: Shelf, metric: IndexedMetric) -> dict[str, Any]:
    column, kind = metric.column, FeedbackKind.BOOLEAN if metric.is_boolean else FeedbackKind.FLOAT
    ((n, low, high),) = shelf.index.ask(f"SELECT count({column}), min({column}), max({column}) FROM rows")
    return {"name": metric.name, "kind": kind, "n": n, "low": low, "high": high}


def _stages(lineage: tuple[LineageEntry, ...]) -> list[dict[str, Any]]:
    stages = []
    for place, entry in enumerate(lineage):
        if place == 0:
            seen = {"n_episodes": entry.n_episodes_in, "n_steps": entry.n_steps_in, "left": [], "masked": []}
            stages.append({"name": f"seen by {entry.verb}", **seen})
        stages.append(
            {
                "name": entry.verb,
                "n_episodes": entry.n_episodes_out,
                "n_steps": entry.n_steps_out,
                "left": _left(entry.left),
                "masked": _left(entry.masked),
            }
        )
    return stages


def _here(shelf: Shelf, one: Shelved) -> dict[str, Any]:
    """Count what training would learn: steps with a weight above 0 that were not played for evaluation."""
    ((n_episodes, n_steps),) = shelf.index.ask(
        "SELECT count(*), coalesce(CAST(sum(n_steps - n_masked) AS BIGINT), 0) FROM rows "
        f"WHERE store = {one.number} AND purpose <> 'eval' AND n_steps > n_masked"
    )
    return {"name": "to be learned", "n_episodes": n_episodes, "n_steps": n_steps, "left": [], "masked": []}


def _left(left: tuple[Left, ...]) -> list[dict[str, Any]]:
    return [{"reason": each.reason, "episodes": each.n_episodes, "steps": each.n_steps} for each in left]


def charts(shelf: Shelf, words: Words) -> dict[str, Any]:
    """Histograms, outcomes by task, variant, store and purpose, and the funnel of each store.

    Raises:
        QueryError: A parameter is unknown, or `where` is not a condition.
        RequestError: A value is invalid.
    """
    chosen = read_filter(words, shelf.index)
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
