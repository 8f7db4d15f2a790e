"""Stream the tables of TensorZero's ClickHouse as Arrow batches, filtered in the database.

Ids are compared and ordered as 128-bit integers: ClickHouse does not sort its UUID type by time. `timestamp`
is a materialised column with a resolution of one second; nothing here uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import pyarrow as pa

from trajkit.errors import ServiceError
from trajkit.schema.base import JsonObject
from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.access import Access
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.clauses import (
    FEEDBACK_TARGETS,
    HASH,
    IS_EVAL,
    as_of_of,
    both,
    bytes_of,
    ids_of_chosen,
    in_scope,
    is_seen,
    milliseconds,
    scope_of,
)
from trajkit.sources.tensorzero.connect.clickhouse.columns import LATER_COLUMNS
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.clickhouse.heads import ClickHouseHeads
from trajkit.sources.tensorzero.connect.clickhouse.rows import Wanted, calls_query, inferences_query
from trajkit.sources.tensorzero.connect.clickhouse.wire import system_column
from trajkit.sources.tensorzero.connect.known import check_names, known_metrics
from trajkit.sources.tensorzero.connect.slot import in_clickhouse
from trajkit.sources.tensorzero.export.config import ConfiguredMetric

REQUIRED = (
    "ChatInference",
    "JsonInference",
    "ModelInference",
    "FloatMetricFeedback",
    "BooleanMetricFeedback",
    "CommentFeedback",
    "DemonstrationFeedback",
)
"""The tables that every TensorZero database has."""


class ClickHouse:
    """A TensorZero database in ClickHouse, read only.

    Args:
        url: `http://user:password@host:port/database`.
        access: Limits on its queries on the server.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: clickhouse-connect is not installed.
    """

    source_name = "tensorzero-clickhouse"
    has_id_bytes = True
    read_at = None

    def __init__(self, url: str, access: Access = Access()) -> None:  # noqa: B008 -- frozen
        self._connection = Connection(url, access)
        self._metrics: dict[str, ConfiguredMetric] | None = None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def describe(self) -> JsonObject:
        """Where this is, without credentials."""
        level = self._schema_level()
        return {"kind": self.source_name, "url": self._connection.address.shown, "schema_level": level}

    # -- what there is ---------------------------------------------------------------------------------------

    def check(self, request: ExportRequest) -> None:
        """Raise unless the tables are there and the request names known functions, variants and metrics."""
        missing = [table for table in REQUIRED if not self._has(table)]
        if missing:
            level = self._schema_level()
            found = "no schema of TensorZero" if level is None else f"schema level {level}"
            raise ServiceError(
                f"{self._connection.address.shown} is not a TensorZero database ({found}): "
                f"missing {', '.join(missing)}",
                hint="the database is the last part of the URL, such as …:8123/tensorzero",
            )
        names = self._connection.query(
            "SELECT DISTINCT function_name, variant_name FROM"
            " (SELECT function_name, variant_name FROM ChatInference"
            " UNION ALL SELECT function_name, variant_name FROM JsonInference)"
        )
        check_names(request, [(row[0], row[1]) for row in names], self.metrics())

    def metrics(self) -> dict[str, ConfiguredMetric]:
        """The metrics that were ever logged, with what the newest configuration says of them; read once."""
        if self._metrics is None:
            self._metrics = self._read_metrics()
        return self._metrics

    def _read_metrics(self) -> dict[str, ConfiguredMetric]:
        configurations = []
        if self._has("ConfigSnapshot"):
            rows = self._connection.query("SELECT config FROM ConfigSnapshot FINAL ORDER BY last_used")
            configurations = [row[0] for row in rows]
        logged = self._connection.query(
            "SELECT DISTINCT metric_name, 'float' FROM FloatMetricFeedback"
            " UNION ALL SELECT DISTINCT metric_name, 'boolean' FROM BooleanMetricFeedback"
        )
        return known_metrics(configurations, [(row[0], row[1]) for row in logged])

    def _schema_level(self) -> int | None:
        if not self._has("TensorZeroMigration"):
            return None
        rows = self._connection.query("SELECT max(migration_id) FROM TensorZeroMigration")
        return int(rows[0][0]) if rows else None

    # -- counting --------------------------------------------------------------------------------------------

    def scope(self, request: ExportRequest) -> tables.Scope:
        """Count all rows, and those that the requested functions, variants and times leave out."""
        scope, parameters = scope_of(request)
        ever = request.model_copy(update={"as_of": None})
        rows = self._connection.query(
            f"""
            SELECT countIf(n > 0), sum(n), countIf(n > 0 AND NOT in_time), sumIf(n, NOT in_time),
                   countIf(n > 0 AND in_time AND NOT is_named), sumIf(n, in_time AND NOT is_named),
                   countIf(n = 0), sum(n_later)
            FROM (
                SELECT countIf(is_seen) AS n, countIf(NOT is_seen) AS n_later,
                       -- the rows that are seen are the first ones
                       {scope.time} AS in_time, countIf(is_seen AND {scope.named_row}) > 0 AS is_named
                FROM (SELECT *, {is_seen(request)} AS is_seen FROM ({both(ever)})) GROUP BY episode_id
            )
            """,
            parameters,
        )
        return tables.Scope(*(int(value or 0) for value in rows[0]))

    def text_bytes(self) -> int:
        """Roughly how many bytes of text the steps of the whole database hold; 0 when unknown."""
        rows = self._connection.query(
            """
            SELECT sum(data_uncompressed_bytes) FROM system.columns WHERE database = currentDatabase()
            AND table IN ('JsonInference', 'ChatInference', 'ModelInference')
            AND name IN ('input', 'output', 'system', 'input_messages', 'tool_params')
            """
        )
        return int(rows[0][0] or 0)

    # -- streams ---------------------------------------------------------------------------------------------

    def index(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream one narrow row per inference of the episodes in scope."""
        scope, parameters = scope_of(request)
        bits = []
        for number, (key, value) in enumerate(request.tags.items()):
            parameters |= {f"key_{number}": key, f"value_{number}": value}
            bound_key, bound_value = f"{{key_{number}:String}}", f"{{value_{number}:String}}"
            wanted = f"mapContains(tags, {bound_key}) AND tags[{bound_key}] = {bound_value}"
            bits.append(f"bitShiftLeft(toUInt64({wanted}), {number})")
        columns = f"""
            {bytes_of("id")} AS id_bytes, {bytes_of("episode_id")} AS episode_bytes,
            function_name, variant_name, {IS_EVAL} AS is_eval, tags['trajkit.purpose'] = 'train' AS is_train,
            {" + ".join(bits) or "toUInt64(0)"} AS tag_match, {in_clickhouse("episode_id")} AS slot
        """
        queries = " UNION ALL ".join(
            f"SELECT {columns} FROM {self._table(table)} WHERE {in_scope(request, scope)}"
            for table in ("JsonInference", "ChatInference")
        )
        # smaller batches than usual, so that the first is processed while the server finds the rest
        queries += self._connection.preferring("max_block_size", "16384")
        return self._connection.stream(queries, tables.INDEX_OF_BYTES, parameters)

    def tag_values(self, request: ExportRequest, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the values of these tags on the inferences of the episodes in scope."""
        scope, parameters = scope_of(request)
        queries = " UNION ALL ".join(
            f"SELECT toString(id) AS id_text, tag_key, tags[tag_key] AS tag_value FROM {self._table(table)}"
            f" ARRAY JOIN {{tag_keys:Array(String)}} AS tag_key"
            f" WHERE mapContains(tags, tag_key) AND {in_scope(request, scope)}"
            for table in ("JsonInference", "ChatInference")
        )
        return self._connection.stream(queries, tables.TAG_VALUES, parameters | {"tag_keys": list(keys)})

    def measured(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the latest value per target of the metrics in the request.

        A 32-bit value travels as its shortest decimal, so that a logged 0.7 arrives as 0.7.
        """
        queries = [
            f"""SELECT metric_name, toString(target_id) AS target, argMax({value}, toUInt128(id)) AS latest
                FROM {table} WHERE metric_name IN {{names:Array(String)}} AND {is_seen(request)}
                GROUP BY metric_name, target_id"""
            for table, value in (
                ("FloatMetricFeedback", "toFloat64(toString(value))"),
                ("BooleanMetricFeedback", "toFloat64(value)"),
            )
        ]
        names = {"names": [condition.name for condition in request.metrics], **as_of_of(request)}
        return self._connection.stream(
            f"SELECT metric_name, target AS target_id, latest AS value FROM ({' UNION ALL '.join(queries)})",
            tables.MEASURED,
            names,
        )

    def eval_targets(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the targets of feedback that is tagged as evaluation."""
        marked = f"tags['trajkit.purpose'] = 'eval' AND {is_seen(request)}"
        queries = " UNION ALL ".join(
            f"SELECT {target} AS target FROM {self._table(table)} WHERE {marked}"
            for table, target in FEEDBACK_TARGETS
        )
        return self._connection.stream(
            f"SELECT DISTINCT toString(target) AS target_id FROM ({queries})",
            tables.EVAL_TARGETS,
            as_of_of(request),
        )

    def abandoned(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the episodes that a rollout marked as abandoned, each with its reason."""
        return self._connection.stream(
            f"""
            SELECT toString(target_id) AS target, argMax(tags['{ABANDONED_TAG}'], toUInt128(id))
            FROM {self._table("CommentFeedback")}
            WHERE mapContains(tags, '{ABANDONED_TAG}') AND {is_seen(request)} GROUP BY target_id
            """,
            tables.ABANDONED,
            as_of_of(request),
        )

    def demonstrated(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the inferences that have a demonstration."""
        return self._connection.stream(
            "SELECT DISTINCT toString(inference_id) AS target_id FROM DemonstrationFeedback"
            f" WHERE {is_seen(request)}",
            tables.DEMONSTRATED,
            as_of_of(request),
        )

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream the inferences of these episodes; None for all."""
        return self._connection.stream(
            inferences_query(Wanted(episode_ids, n_buckets, request), self._table, id_of=bytes_of),
            tables.INFERENCES_OF_BYTES,
            as_of_of(request),
            chosen=episode_ids,
        )

    def model_inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream the model calls of the inferences of these episodes; None for all."""
        wanted = Wanted(episode_ids, n_buckets, request)
        return self._connection.stream(
            calls_query(wanted, self._table, system=system_column(self._connection), id_of=bytes_of),
            tables.MODEL_INFERENCES_OF_BYTES,
            as_of_of(request),
            chosen=episode_ids,
        )

    @property
    def heads(self) -> ClickHouseHeads:
        """The same rows without the heads of their long texts."""
        return ClickHouseHeads(self._connection, self._table)

    def raw_requests(self, model_inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the raw requests of these model calls."""
        chosen = pa.table({"episode_id": pa.array(model_inference_ids, pa.string())})
        return self._connection.stream(
            """
            SELECT toString(id) AS model_inference_id, raw_request FROM ModelInference
            WHERE id IN (SELECT toUUID(episode_id) FROM chosen) AND raw_request != ''
            """,
            tables.RAW_REQUESTS,
            chosen=chosen,
        )

    def feedback(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream all feedback on these episodes and their inferences; None for all."""

        def on_chosen(target: str) -> str:
            if episode_ids is None:
                return "true"
            episodes = "SELECT toUUID(episode_id) FROM chosen"
            return f"{target} IN ({episodes} UNION ALL {ids_of_chosen(episode_ids)})"

        queries = " UNION ALL ".join(
            f"SELECT id, {target} AS target, '{kind}' AS kind, {name} AS metric, {value} AS value_json, tags"
            f" FROM {self._table(table)} WHERE {on_chosen(target)} AND {is_seen(request)}"
            for table, target, kind, name, value in (
                ("FloatMetricFeedback", "target_id", "float", "metric_name", "toString(value)"),
                (
                    "BooleanMetricFeedback",
                    "target_id",
                    "boolean",
                    "metric_name",
                    "if(value, 'true', 'false')",
                ),
                ("CommentFeedback", "target_id", "comment", "'comment'", "toJSONString(value)"),
                ("DemonstrationFeedback", "inference_id", "demonstration", "'demonstration'", "value"),
            )
        )
        return self._connection.stream(
            f"""SELECT toString(id) AS feedback_id, toString(target) AS target_id, kind,
                       metric AS metric_name, value_json AS value, tags, NULL AS exact FROM ({queries})""",
            tables.FEEDBACK,
            as_of_of(request),
            chosen=episode_ids,
        )

    def new_feedback(self, since: datetime, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the ids and targets of the feedback that was logged then or later."""
        queries = " UNION ALL ".join(
            f"SELECT toString(id), toString({target}) FROM {table}"
            f" WHERE bitShiftRight(toUInt128(id), 80) >= {{since:UInt64}} AND {is_seen(request)}"
            for table, target in FEEDBACK_TARGETS
        )
        parameters = as_of_of(request) | {"since": milliseconds(since)}
        return self._connection.stream(queries, tables.NEW_FEEDBACK, parameters)

    def snapshots(self) -> Iterator[pa.RecordBatch]:
        """Stream the configurations that inferences were made with, the one used last at the end."""
        if not self._has("ConfigSnapshot"):
            return iter(())
        hashed = HASH.replace("snapshot_hash", "hash")
        return self._connection.stream(
            f"SELECT {hashed} AS snapshot_hash, config, extra_templates FROM ConfigSnapshot FINAL"
            " ORDER BY last_used",
            tables.SNAPSHOTS,
        )

    def tasks(self) -> Iterator[pa.RecordBatch]:
        """Stream the episodes of workflow evaluations with their tasks."""
        if not self._has("DynamicEvaluationRunEpisode"):
            return iter(())
        return self._connection.stream(
            """
            SELECT lower(concat(substring(digits, 1, 8), '-', substring(digits, 9, 4), '-',
                       substring(digits, 13, 4), '-', substring(digits, 17, 4), '-',
                       substring(digits, 21))) AS episode,
                   toString(run_id) AS run, datapoint_name, tags
            FROM (
                SELECT leftPad(hex(episode_id_uint), 32, '0') AS digits, run_id, datapoint_name, tags
                FROM DynamicEvaluationRunEpisode FINAL
            )
            """,
            tables.TASKS,
        )

    # -- plumbing --------------------------------------------------------------------------------------------

    def _has(self, table: str, column: str | None = None) -> bool:
        return self._connection.has(table, column)

    def _table(self, table: str) -> str:
        """A table for FROM; columns that it is too old to have are there, empty."""
        missing = [
            f"{empty} AS {column}"
            for column, empty in LATER_COLUMNS[table].items()
            if not self._has(table, column)
        ]
        return f"(SELECT *, {', '.join(missing)} FROM {table})" if missing else table
