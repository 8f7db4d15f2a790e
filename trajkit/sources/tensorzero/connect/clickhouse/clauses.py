"""SQL clauses that ClickHouse's queries share: episodes in scope, chosen episodes, buckets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.known import EVAL_TAGS, JUDGES
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, in_clickhouse, slots_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


FEEDBACK_TARGETS = (
    ("FloatMetricFeedback", "target_id"),
    ("BooleanMetricFeedback", "target_id"),
    ("CommentFeedback", "target_id"),
    ("DemonstrationFeedback", "inference_id"),
)
"""The tables of feedback, each with the column of its target."""

IS_EVAL = (
    "(tags['trajkit.purpose'] = 'eval' OR "
    + " OR ".join(f"mapContains(tags, '{tag}')" for tag in EVAL_TAGS)
    + f" OR startsWith(function_name, '{JUDGES}'))"
)
"""The condition for an inference of an evaluation."""

HASH = "lower(leftPad(hex(snapshot_hash), 64, '0'))"
"""A configuration's hash as TensorZero prints it; `hex` leaves out the zeros that it begins with."""


def text_of(id_column: str) -> str:
    """An id as it is spelled."""
    return f"toString({id_column})"


def bytes_of(id_column: str) -> str:
    """An id as its 16 bytes, the first one first."""
    return f"reverse(reinterpretAsFixedString(toUInt128({id_column})))"


class Scope(NamedTuple):
    """Conditions over the rows of one episode, grouped by its id."""

    time: str
    named_row: str
    """True for a row of the requested functions and variants."""

    @property
    def named(self) -> str:
        """That one of the rows is."""
        return f"countIf({self.named_row}) > 0"


def both(request: ExportRequest) -> str:
    """The inferences of both function types that are visible to the request."""
    return " UNION ALL ".join(
        f"SELECT id, episode_id, function_name, variant_name FROM {table} WHERE {is_seen(request)}"
        for table in ("JsonInference", "ChatInference")
    )


def is_seen(request: ExportRequest) -> str:
    """The condition on a row, by the time in its id, that a request's as-of time makes."""
    return "true" if request.as_of is None else "bitShiftRight(toUInt128(id), 80) <= {as_of:UInt64}"


def milliseconds(moment: datetime) -> int:
    """A moment as ids have it, rounded up, exactly."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def as_of_of(request: ExportRequest) -> dict[str, Any]:
    """The parameter of `is_seen`."""
    if request.as_of is None:
        return {}
    return {"as_of": (request.as_of - _EPOCH) // timedelta(milliseconds=1)}  # exact, unlike a float


_ALWAYS = "true"
_STARTED_MS = "min(bitShiftRight(toUInt128(id), 80))"


def scope_of(request: ExportRequest) -> tuple[Scope, dict[str, Any]]:
    """The conditions of a request that the database can decide alone, with their parameters."""
    parameters = as_of_of(request)
    time = []
    for name, moment, operator in (("since", request.since, ">="), ("until", request.until, "<")):
        if moment is not None:
            parameters[name] = milliseconds(moment)
            time.append(f"{_STARTED_MS} {operator} {{{name}:UInt64}}")
    named = ["NOT startsWith(function_name, 'tensorzero::')"]
    for name, values in (("functions", request.functions), ("variants", request.variants)):
        if values:
            parameters[name] = list(values)
            named.append(f"{name[:-1]}_name IN {{{name}:Array(String)}}")
    return Scope(" AND ".join(time) or _ALWAYS, " AND ".join(named)), parameters


def in_scope(request: ExportRequest, scope: Scope) -> str:
    """The condition on an inference to be of an episode in scope."""
    in_shard = "true"
    if request.shard is not None:
        first, last = slots_of(request.shard.number, request.shard.n)
        in_shard = f"{in_clickhouse('episode_id')} BETWEEN {first} AND {last}"
    if scope.time == _ALWAYS:  # one row is enough; no need to group by episode
        episodes = f"WHERE {scope.named_row}"
    else:
        episodes = f"GROUP BY episode_id HAVING {scope.time} AND {scope.named}"
    return (
        f"{in_shard} AND {is_seen(request)}"
        f" AND episode_id IN (SELECT episode_id FROM ({both(request)}) {episodes})"
    )


def bucket(column: str, n_buckets: int) -> str:
    """The bucket of the episode whose id is in a column."""
    return f"toUInt16(intDiv(toUInt32({in_clickhouse(column)}) * {n_buckets}, {N_SLOTS}))"


def in_chosen(column: str, episode_ids: pa.Table | None) -> str:
    """The condition that rows belong to the chosen episodes; true when all are chosen."""
    return "true" if episode_ids is None else f"{column} IN (SELECT toUUID(episode_id) FROM chosen)"


def ids_of_chosen(episode_ids: pa.Table | None) -> str:
    """A query for the ids of the chosen episodes' inferences."""
    return " UNION ALL ".join(
        f"SELECT id FROM {table} WHERE {in_chosen('episode_id', episode_ids)}"
        for table in ("JsonInference", "ChatInference")
    )
