"""Describe TensorZero's ClickHouse for `look`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.connect.clickhouse.clauses import IS_EVAL
from trajkit.sources.tensorzero.connect.clickhouse.database import ClickHouse
from trajkit.sources.tensorzero.look.queries import PATIENCE_S, LookTables

_FEEDBACK_TARGETS = (
    ("float", "FloatMetricFeedback", "target_id"),
    ("boolean", "BooleanMetricFeedback", "target_id"),
    ("comment", "CommentFeedback", "target_id"),
    ("demonstration", "DemonstrationFeedback", "inference_id"),
)


class LookedClickHouse(ClickHouse):
    """A TensorZero database in ClickHouse that is only looked at.

    Args:
        url: `http://user:password@host:port/database`.
        access: Limits on its queries on the server; `PATIENCE_S` where it sets no time and the user may
            set one.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: clickhouse-connect is not installed.
    """

    def __init__(self, url: str, access: Access = Access()) -> None:  # noqa: B008 -- frozen
        super().__init__(url, access)
        if access.max_seconds is None:
            self._connection.prefer("max_execution_time", str(PATIENCE_S))

    def look_rows(self, sql: str, bound: Mapping[str, str]) -> list[tuple[Any, ...]]:
        """A small answer; `LimitReached` when the server has not the time or the memory for it."""
        return self._connection.query(sql, dict(bound))

    def look_tables(self) -> LookTables:
        """How its tables become the relations of a look."""
        inferences = [
            f"""SELECT id, episode_id, function_name, variant_name, '{kind}' AS function_type,
                       toUInt64(bitShiftRight(toUInt128(id), 80)) AS at_ms,
                       NOT startsWith(function_name, 'tensorzero::') AS is_named, {IS_EVAL} AS is_eval
                FROM {self._table(table)}"""
            for table, kind in (("JsonInference", "json"), ("ChatInference", "chat"))
        ]
        latest = [
            f"""SELECT metric_name, '{kind}' AS kind, target_id,
                       argMax({value}, toUInt128(id)) AS value
                FROM {table} GROUP BY metric_name, target_id"""
            for table, kind, value in (
                ("FloatMetricFeedback", "float", "toFloat64(toString(value))"),
                ("BooleanMetricFeedback", "boolean", "toFloat64(value)"),
            )
        ]
        marked = [
            f"SELECT {target} AS target_id FROM {self._table(table)} WHERE tags['trajkit.purpose'] = 'eval'"
            for _, table, target in _FEEDBACK_TARGETS
        ]
        tags = [
            f"SELECT key, value FROM {self._table(table)}"
            " ARRAY JOIN mapKeys(tags) AS key, mapValues(tags) AS value"
            for table in ("JsonInference", "ChatInference")
        ]
        return LookTables(
            inference=" UNION ALL ".join(inferences),
            latest=" UNION ALL ".join(latest),
            feedback=" UNION ALL ".join(
                f"SELECT '{kind}' AS kind FROM {table}" for kind, table, _ in _FEEDBACK_TARGETS
            ),
            marked=" UNION ALL ".join(marked),
            abandoned=f"SELECT target_id FROM {self._table('CommentFeedback')}"
            f" WHERE mapContains(tags, '{ABANDONED_TAG}')",
            tag=" UNION ALL ".join(tags),
            quantiles=_quantiles,
            single=lambda expression: f"toFloat32({expression})",
            bind=lambda name: f"{{{name}:String}}",
        )


def _quantiles(shares: Sequence[float]) -> str:
    # the smallest value that a share does not exceed: ClickHouse's own quantiles are others
    place = "toUInt64(greatest(1, ceil(share * count())))"
    return f"arrayMap(share -> arrayElement(arraySort(groupArray(value)), {place}), {list(shares)})"
