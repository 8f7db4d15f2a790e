"""SQL clauses that Postgres's queries share: episodes in scope, chosen episodes, numbers and hashes.

UUIDv7 compare in Postgres as their bytes do, which is the order of their times: a time becomes the least id
of its millisecond.
"""

from __future__ import annotations

from datetime import datetime
from math import floor
from typing import NamedTuple

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.known import EVAL_TAGS, JUDGES
from trajkit.sources.tensorzero.connect.postgres.connection import bound, bound_ids, bound_list
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, in_postgres, slots_of

INFERENCE_TABLES = ("json_inferences", "chat_inferences")

FEEDBACK_TARGETS = (
    ("float_metric_feedback", "target_id"),
    ("boolean_metric_feedback", "target_id"),
    ("comment_feedback", "target_id"),
    ("demonstration_feedback", "inference_id"),
)
"""The tables of feedback, each with the column of its target."""

Values = dict[str, str | list[str]]


class Scope(NamedTuple):
    """Conditions over the rows of one episode, grouped by its id."""

    time: str
    named_row: str
    """That a row is of the functions and variants asked for."""

    @property
    def named(self) -> str:
        """That one of the rows is."""
        return f"bool_or({self.named_row})"


IS_EVAL = (
    f"(tags->>'trajkit.purpose' IS NOT DISTINCT FROM 'eval'"
    f" OR tags ?| ARRAY[{', '.join(repr(tag) for tag in EVAL_TAGS)}]"
    f" OR starts_with(function_name, '{JUDGES}'))"
)
"""The condition for an inference of an evaluation."""

IS_NAMED = "NOT starts_with(function_name, 'tensorzero::')"

# halfway between the largest 32-bit float and what would come after it; and half of the smallest: what is
# beyond does not fit, and a cast would fail
_TOO_LARGE, _TOO_SMALL = "3.4028235677973366e38", "7.006492321624085e-46"
SINGLE = f"""(CASE
    WHEN value = 'NaN' OR abs(value) = 'Infinity' THEN value::float4
    WHEN abs(value) >= {_TOO_LARGE} THEN (CASE WHEN value > 0 THEN 'Infinity' ELSE '-Infinity' END)::float4
    WHEN abs(value) <= {_TOO_SMALL} THEN (CASE WHEN value::text LIKE '-%' THEN '-0' ELSE '0' END)::float4
    ELSE value::float4 END)"""
"""A float metric in single precision, as ClickHouse keeps it."""

NUMBER = f"({SINGLE})::text::float8"
"""The same as a double: the one whose shortest decimal is that of the 32-bit float."""

_EXPONENT_FROM, _EXPONENT_BELOW = "1e21", "1e-6"  # for ClickHouse; Postgres writes exponents long before
NUMBER_TEXT = f"""(CASE
    WHEN value = 'NaN' THEN 'nan'
    WHEN abs({SINGLE}) = 'Infinity' THEN CASE WHEN value > 0 THEN 'inf' ELSE '-inf' END
    WHEN abs({SINGLE}) >= {_EXPONENT_FROM} THEN replace({SINGLE}::text, 'e+', 'e')
    WHEN {SINGLE} = 0 THEN {SINGLE}::text
    WHEN abs({SINGLE}) < {_EXPONENT_BELOW}::float4 THEN replace({SINGLE}::text, 'e-0', 'e-')
    ELSE {SINGLE}::text::numeric::text END)"""
"""The same as ClickHouse writes it: the shortest decimal."""


def hex_of(column: str) -> str:
    """A hash as TensorZero prints it."""
    return f"lpad(encode({column}, 'hex'), 64, '0')"


def both(request: ExportRequest) -> str:
    """The inferences of both kinds of functions, as far as the request may see them."""
    return " UNION ALL ".join(
        f"SELECT id, episode_id, function_name, variant_name FROM tensorzero.{table} WHERE {is_seen(request)}"
        for table in INFERENCE_TABLES
    )


def is_seen(request: ExportRequest, column: str = "id") -> str:
    """The condition on a row, by the time in its id, that a request's as-of time makes."""
    return "true" if request.as_of is None else f"{column} < {bound('after_as_of')}::uuid"


def as_of_of(request: ExportRequest) -> Values:
    """The value of `is_seen`."""
    if request.as_of is None:
        return {}
    return {"after_as_of": _least_id(floor(request.as_of.timestamp() * 1000) + 1)}


def scope_of(request: ExportRequest) -> tuple[Scope, Values]:
    """The part of a request that the database decides on its own, with its values."""
    values = as_of_of(request)
    time = []
    for name, moment, condition in (
        ("since", request.since, "bool_and(id >= {}::uuid)"),
        ("until", request.until, "bool_or(id < {}::uuid)"),
    ):
        if moment is not None:
            values[name] = _least_id(_milliseconds(moment))
            time.append(condition.format(bound(name)))
    named = [IS_NAMED]
    for name, names in (("functions", request.functions), ("variants", request.variants)):
        if names:
            values[name] = list(names)
            named.append(f"{name[:-1]}_name = ANY({bound_list(name)})")
    return Scope(" AND ".join(time) or "true", " AND ".join(named)), values


def episodes_in_scope(request: ExportRequest, scope: Scope) -> str:
    """A query for the ids of the episodes in scope, and in the shard."""
    in_shard = "true"
    if request.shard is not None:
        first, last = slots_of(request.shard.number, request.shard.n)
        in_shard = f"{in_postgres('episode_id')} BETWEEN {first} AND {last}"
    return (
        f"SELECT episode_id AS id FROM ({both(request)}) AS b WHERE {in_shard} GROUP BY episode_id"
        f" HAVING {scope.time} AND {scope.named}"
    )


def bucket(column: str, n_buckets: int) -> str:
    """The bucket of the episode whose id is in a column."""
    return f"({in_postgres(column)} * {n_buckets} / {N_SLOTS})"


def chosen_values(episode_ids: pa.Table | None) -> Values:
    """The value of `chosen`."""
    if episode_ids is None:
        return {}
    return {"chosen": ",".join(map(str, episode_ids.column(0).to_pylist()))}


def chosen(episode_ids: pa.Table | None) -> str:
    """A query for the ids of the chosen episodes."""
    return "SELECT NULL::uuid AS id" if episode_ids is None else bound_ids("chosen", episode_ids.num_rows)


def in_chosen(column: str, episode_ids: pa.Table | None) -> str:
    """The condition on rows to be about what `chosen` has as a common table; true when that is everything."""
    return "true" if episode_ids is None else f"{column} IN (SELECT id FROM chosen)"


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def least_id(moment: datetime) -> str:
    """The least id of a moment."""
    return _least_id(_milliseconds(moment))


def _least_id(ms: int) -> str:
    """The least UUID of a millisecond."""
    digits = f"{max(0, min(ms, 2**48 - 1)):012x}"
    return f"{digits[:8]}-{digits[8:]}-0000-0000-000000000000"
