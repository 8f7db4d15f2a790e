"""Describe TensorZero's Postgres for `look`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.access import Access
from trajkit.sources.tensorzero.connect.postgres.clauses import IS_EVAL, IS_NAMED, NUMBER
from trajkit.sources.tensorzero.connect.postgres.connection import bound
from trajkit.sources.tensorzero.connect.postgres.database import Postgres
from trajkit.sources.tensorzero.look.queries import PATIENCE_S, LookTables

_FEEDBACK_TARGETS = (
    ("float", "float_metric_feedback", "target_id"),
    ("boolean", "boolean_metric_feedback", "target_id"),
    ("comment", "comment_feedback", "target_id"),
    ("demonstration", "demonstration_feedback", "inference_id"),
)
_INFERENCE_TABLES = (("json_inferences", "json"), ("chat_inferences", "chat"))
_BYTES = 'COLLATE "C"'
"""Sorted as ClickHouse sorts, whatever the database's language."""
_AT_MS = "('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint"


class LookedPostgres(Postgres):
    """A TensorZero database in Postgres that is only looked at.

    Args:
        url: `postgresql://user:password@host:port/database`.
        access: Limits on its queries on the server; `PATIENCE_S` where it sets no time.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: adbc-driver-postgresql is not installed.
    """

    def __init__(self, url: str, access: Access = Access()) -> None:  # noqa: B008 -- frozen
        seconds = access.max_seconds or PATIENCE_S
        super().__init__(url, access.model_copy(update={"max_seconds": seconds}))

    def look_rows(self, sql: str, bound_texts: Mapping[str, str]) -> list[tuple[Any, ...]]:
        """A small answer; `LimitReached` when the server has not the time or the memory for it."""
        return self._connection.query(sql, dict(bound_texts))

    def look_tables(self) -> LookTables:
        """How its tables become the relations of a look."""
        inferences = [
            f"""SELECT id, episode_id, function_name {_BYTES} AS function_name,
                       variant_name {_BYTES} AS variant_name, '{kind}' AS function_type,
                       {_AT_MS} AS at_ms, {IS_NAMED} AS is_named, {IS_EVAL} AS is_eval
                FROM tensorzero.{table}"""
            for table, kind in _INFERENCE_TABLES
        ]
        # an id that is made later is the larger one
        latest = [
            f"""SELECT metric_name {_BYTES} AS metric_name, '{kind}' AS kind, target_id, {value} AS value
                FROM (
                    SELECT DISTINCT ON (metric_name, target_id) metric_name, target_id, value
                    FROM tensorzero.{table} ORDER BY metric_name, target_id, id DESC
                ) AS {kind}_latest"""
            for kind, table, value in (
                ("float", "float_metric_feedback", NUMBER),
                ("boolean", "boolean_metric_feedback", "value::int::float8"),
            )
        ]
        marked = [
            f"SELECT {target} AS target_id FROM tensorzero.{table} WHERE tags->>'trajkit.purpose' = 'eval'"
            for _, table, target in _FEEDBACK_TARGETS
        ]
        tags = [
            f"SELECT t.key {_BYTES} AS key, t.value {_BYTES} AS value"
            f" FROM tensorzero.{table} CROSS JOIN jsonb_each_text(tags) AS t(key, value)"
            for table, _ in _INFERENCE_TABLES
        ]
        return LookTables(
            inference=" UNION ALL ".join(inferences),
            latest=" UNION ALL ".join(latest),
            feedback=" UNION ALL ".join(
                f"SELECT '{kind}' AS kind FROM tensorzero.{table}" for kind, table, _ in _FEEDBACK_TARGETS
            ),
            marked=" UNION ALL ".join(marked),
            abandoned=f"SELECT target_id FROM tensorzero.comment_feedback WHERE tags ? '{ABANDONED_TAG}'",
            tag=" UNION ALL ".join(tags),
            quantiles=_quantiles,
            single=lambda expression: f"CAST({expression} AS real)",
            bind=bound,
        )


def _quantiles(shares: Sequence[float]) -> str:
    return f"percentile_disc(ARRAY{list(shares)}) WITHIN GROUP (ORDER BY value)"
