"""Conditions that the queries of an archive share: which rows are seen, in scope, of the chosen episodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.known import EVAL_TAGS, JUDGES
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, in_duckdb, slots_of
from trajkit.store.engine import literal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

IS_EVAL = (
    "(list_contains(list_transform(tags, lambda e: e.key), 'trajkit.purpose')"
    " AND tag_of(tags, 'trajkit.purpose') = 'eval'"
    f" OR list_has_any(list_transform(tags, lambda e: e.key), [{', '.join(map(literal, EVAL_TAGS))}])"
    f" OR starts_with(function_name, '{JUDGES}'))"
)
"""The condition on an inference to be evaluation."""


def scope_of(request: ExportRequest) -> tuple[str, str, dict[str, Any]]:
    """Conditions on the time of an episode, over its rows, and on a row's names; with their parameters."""
    time, parameters = [], {}
    for moment, operator in ((request.since, ">="), (request.until, "<")):
        if moment is not None:
            time.append(f"min(ms_of(id)) {operator} {rounded_up(moment)}")
    named = ["NOT starts_with(function_name, 'tensorzero::')"]
    for name, values in (("functions", request.functions), ("variants", request.variants)):
        if values:
            parameters[name] = list(values)
            named.append(f"list_contains(${name}, {name[:-1]}_name)")
    return " AND ".join(time) or "true", " AND ".join(named), parameters


def rounded_up(moment: datetime) -> int:
    """A moment in milliseconds."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def in_scope(request: ExportRequest) -> tuple[str, dict[str, Any]]:
    """The condition on an inference to be of an episode in scope, and in the shard."""
    time, named, parameters = scope_of(request)
    seen = is_seen(request)
    if request.shard is not None:
        first, last = slots_of(request.shard.number, request.shard.n)
        seen += f" AND {in_duckdb('episode_id')} BETWEEN {first} AND {last}"
    episodes = (
        f"SELECT episode_id FROM inference WHERE {seen} GROUP BY episode_id"
        f" HAVING {time} AND count(*) FILTER ({named}) > 0"
    )
    return f"{seen} AND episode_id IN ({episodes})", parameters


def is_seen(request: ExportRequest) -> str:
    """The condition on a row that a request's as-of time makes."""
    if request.as_of is None:
        return "true"
    return f"ms_of(id) <= {(request.as_of - _EPOCH) // timedelta(milliseconds=1)}"


def in_chosen(episode_ids: pa.Table | None) -> str:
    """The condition on an inference to be of the chosen episodes; true when that is all of them."""
    return "true" if episode_ids is None else "episode_id IN (SELECT episode_id FROM chosen)"


def bucket(n_buckets: int) -> str:
    """The bucket of the episode of a row."""
    return f"({in_duckdb('episode_id')}::UINTEGER * {n_buckets} // {N_SLOTS})::USMALLINT"
