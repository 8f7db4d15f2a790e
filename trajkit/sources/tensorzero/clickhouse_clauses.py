"""Clauses that ClickHouse's queries share: which episodes are in scope, which were chosen, their buckets."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero import tables


class Scope(NamedTuple):
    """Conditions over the rows of one episode, grouped by its id."""

    time: str
    named: str


BOTH = (
    "SELECT id, episode_id, function_name, variant_name FROM JsonInference"
    " UNION ALL SELECT id, episode_id, function_name, variant_name FROM ChatInference"
)
"""The inferences of both kinds of functions."""

_STARTED_MS = "min(bitShiftRight(toUInt128(id), 80))"


def scope_of(request: ExportRequest) -> tuple[Scope, dict[str, Any]]:
    """The part of a request that the database decides on its own, with its parameters."""
    parameters: dict[str, Any] = {}
    time = []
    for name, moment, operator in (("since", request.since, ">="), ("until", request.until, "<")):
        if moment is not None:
            parameters[name] = round(moment.timestamp() * 1000)
            time.append(f"{_STARTED_MS} {operator} {{{name}:UInt64}}")
    named = ["NOT startsWith(function_name, 'tensorzero::')"]
    for name, values in (("functions", request.functions), ("variants", request.variants)):
        if values:
            parameters[name] = list(values)
            named.append(f"{name[:-1]}_name IN {{{name}:Array(String)}}")
    return Scope(" AND ".join(time) or "true", f"countIf({' AND '.join(named)}) > 0"), parameters


SLOT = f"toUInt16(sipHash64({{}}) % {tables.N_SLOTS})"
"""An episode's slot; its id goes into the braces."""


def bucket(column: str, n_buckets: int) -> str:
    """The bucket of the episode whose id is in a column."""
    return f"toUInt16(intDiv(toUInt32({SLOT.format(column)}) * {n_buckets}, {tables.N_SLOTS}))"


def in_chosen(column: str, episode_ids: pa.Table | None) -> str:
    """The WHERE of rows that are about the chosen episodes; nothing when that is all of them."""
    return "" if episode_ids is None else f"WHERE {column} IN (SELECT toUUID(episode_id) FROM chosen)"


def ids_of_chosen(episode_ids: pa.Table | None) -> str:
    """A query for the ids of the chosen episodes' inferences."""
    return " UNION ALL ".join(
        f"SELECT id FROM {table} {in_chosen('episode_id', episode_ids)}"
        for table in ("JsonInference", "ChatInference")
    )
