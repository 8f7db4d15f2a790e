"""Describe the stores of a page, and how they were made."""

from __future__ import annotations

from typing import Any

import trajkit
from trajkit.schema import FeedbackKind, Left, LineageEntry
from trajkit.store.commands import command_of
from trajkit.store.layout import quoted
from trajkit.viewer.filter import Filter, Words, refuse_others, sortable
from trajkit.viewer.index import FACETS, IndexedMetric, Shelved
from trajkit.viewer.listing import facets
from trajkit.viewer.shelf import Shelf


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
        "n_values": {name: _n_values(shelf, name) for name in FACETS},
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


def _n_values(shelf: Shelf, facet: str) -> int:
    ((n,),) = shelf.index.ask(f"SELECT count(DISTINCT {quoted(facet)}) FROM rows")
    return int(n)


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
