"""Read rows of TensorZero's ClickHouse by the ids of episodes and inferences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.clauses import in_chosen
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.clickhouse.wire import SYSTEM_SENT

_ROWS = (
    ("JsonInference", "episode_id"),
    ("ChatInference", "episode_id"),
    ("FloatMetricFeedback", "target_id"),
    ("BooleanMetricFeedback", "target_id"),
)
"""The tables with rows of an episode, each with the column of its id."""


class ClickHouseById:
    """A TensorZero database in ClickHouse, read only, for a few rows at a time. It must be closed.

    Args:
        url: `http://user:password@host:port/database`.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: clickhouse-connect is not installed.
    """

    def __init__(self, url: str) -> None:
        self._connection = Connection(url)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def calls(self, inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the model calls of these inferences (the columns of `MODEL_INFERENCES`)."""
        return self._connection.stream(
            f"""
            SELECT toString(inference_id) AS inference_id, toString(id) AS model_inference_id, model_name,
                   model_provider_name, {SYSTEM_SENT} AS system_sent, input_messages, output, input_tokens,
                   output_tokens, NULL AS cost_usd, toString(finish_reason) AS finish_reason, cached,
                   NULL AS response_time_ms, NULL AS ttft_ms, 0 AS bucket
            FROM ModelInference WHERE inference_id IN (SELECT toUUID(episode_id) FROM chosen)
            """,
            tables.MODEL_INFERENCES,
            chosen=_chosen(inference_ids),
        )

    def tools(self, inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the tools of those of these inferences that had any (the columns of `TOOLS_BY_ID`)."""
        return self._connection.stream(
            """
            SELECT toString(id) AS inference_id, tool_params FROM ChatInference
            WHERE (function_name, variant_name, episode_id) IN (
                SELECT function_name, variant_name, episode_id FROM InferenceById
                WHERE id_uint IN (SELECT toUInt128(toUUID(episode_id)) FROM chosen)
            ) AND id IN (SELECT toUUID(episode_id) FROM chosen) AND tool_params <> ''
            """,
            tables.TOOLS_BY_ID,
            chosen=_chosen(inference_ids),
        )

    def row_ids(self, episode_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the ids of the inferences of these episodes and of the feedback on them."""
        chosen = _chosen(episode_ids)
        both = " UNION ALL ".join(
            f"SELECT {column} AS episode, id FROM {table} WHERE {in_chosen(column, chosen)}"
            for table, column in _ROWS
        )
        return self._connection.stream(
            f"SELECT toString(episode) AS episode_text, toString(id) AS id_text FROM ({both})",
            tables.ROW_IDS,
            chosen=chosen,
        )


def _chosen(ids: Sequence[str]) -> pa.Table:
    """The ids as a table that is sent with a query."""
    return pa.table({"episode_id": pa.array(ids, pa.string())})
