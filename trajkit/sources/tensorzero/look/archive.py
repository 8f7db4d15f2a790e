"""Describe an archive of a TensorZero database for `look`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.tensorzero.archive.clauses import IS_EVAL
from trajkit.sources.tensorzero.archive.database import ArchiveDatabase
from trajkit.sources.tensorzero.look.queries import LookTables


class LookedArchive(ArchiveDatabase):
    """An archive that is only looked at.

    Args:
        folder: The archive.

    Raises:
        StoreError: It is not an archive, is of a newer version, or a file is missing or of another size.
    """

    def look_rows(self, sql: str, bound: Mapping[str, str]) -> list[tuple[Any, ...]]:
        """A small answer."""
        return self._files.rows(sql, bound)

    def look_tables(self) -> LookTables:
        """How its tables become the relations of a look."""
        return LookTables(
            inference="SELECT id, episode_id, function_name, variant_name, function_type, ms_of(id) AS at_ms,"
            " NOT starts_with(function_name, 'tensorzero::') AS is_named,"
            f" coalesce({IS_EVAL}, false) AS is_eval FROM inference",
            latest=" UNION ALL ".join(
                f"SELECT metric_name, '{kind}' AS kind, target_id, arg_max({value}, id) AS value"
                f" FROM {kind}_feedback GROUP BY metric_name, target_id"
                for kind, value in (
                    ("float", "shortest(value)::DOUBLE"),
                    ("boolean", "value::INT::DOUBLE"),
                )
            ),
            feedback="SELECT kind FROM feedback",
            marked="SELECT target_id FROM feedback WHERE tag_of(tags, 'trajkit.purpose') = 'eval'",
            abandoned="SELECT target_id FROM comment_feedback"
            f" WHERE tag_of(tags, '{ABANDONED_TAG}') IS NOT NULL",
            tag="SELECT e.key AS key, e.value AS value FROM (SELECT unnest(tags) AS e FROM inference)",
            quantiles=_quantiles,
            single=lambda expression: f"CAST({expression} AS FLOAT)",
            bind=lambda name: f"${name}",
        )


def _quantiles(shares: Sequence[float]) -> str:
    return f"quantile_disc(value, {list(shares)})"
