"""TensorZero's ClickHouse as streams of Arrow batches, narrowed in the database.

Ids are compared and ordered as 128-bit integers: ClickHouse does not sort its UUID type by time. `timestamp`
is a materialised column with a resolution of one second; nothing here uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from trajkit.errors import QueryError, ServiceError
from trajkit.schema.base import JsonObject
from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero import tables
from trajkit.sources.tensorzero.clickhouse_clauses import (
    BOTH,
    SLOT,
    bucket,
    ids_of_chosen,
    in_chosen,
    scope_of,
)
from trajkit.sources.tensorzero.clickhouse_connection import Connection
from trajkit.sources.tensorzero.config import ConfiguredMetric, metrics_of

REQUIRED = (
    "ChatInference",
    "JsonInference",
    "ModelInference",
    "FloatMetricFeedback",
    "BooleanMetricFeedback",
    "CommentFeedback",
    "DemonstrationFeedback",
)
"""Without these it is not a TensorZero database."""

# tensorzero.md: what TensorZero itself writes on evaluation traffic
_EVAL_TAGS = (
    "tensorzero::evaluation_run_id",
    "tensorzero::evaluation_name",
    "tensorzero::datapoint_id",
    "tensorzero::internal",
    "tensorzero::workflow_evaluation_run_id",
    "tensorzero::dynamic_evaluation_run_id",
)
_IS_EVAL = (
    "(tags['trajkit.purpose'] = 'eval' OR "
    + " OR ".join(f"mapContains(tags, '{tag}')" for tag in _EVAL_TAGS)
    + " OR startsWith(function_name, 'tensorzero::llm_judge::'))"
)


class ClickHouse:
    """A TensorZero database in ClickHouse, read only.

    Args:
        url: `http://user:password@host:port/database`.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: clickhouse-connect is not installed.
    """

    source_name = "tensorzero-clickhouse"

    def __init__(self, url: str) -> None:
        self._connection = Connection(url)

    def close(self) -> None:
        """Let go of the connection."""
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
        _check_known("function", request.functions, {row[0] for row in names})
        of_functions = {row[1] for row in names if not request.functions or row[0] in request.functions}
        _check_known("variant", request.variants, of_functions)
        _check_known("metric", [condition.name for condition in request.metrics], set(self.metrics()))

    def metrics(self) -> dict[str, ConfiguredMetric]:
        """The metrics that were ever logged, with what the newest configuration says about them."""
        configured = self._configured_metrics()
        logged = self._connection.query(
            "SELECT DISTINCT metric_name, 'float' FROM FloatMetricFeedback"
            " UNION ALL SELECT DISTINCT metric_name, 'boolean' FROM BooleanMetricFeedback"
        )
        unconfigured = ConfiguredMetric(kind="float", level=None, optimize=None)
        found = dict(configured)
        for name, kind in logged:
            found[name] = configured.get(name, unconfigured)._replace(kind=kind)
        return found

    def _configured_metrics(self) -> dict[str, ConfiguredMetric]:
        if not self._has("ConfigSnapshot"):
            return {}
        rows = self._connection.query("SELECT config FROM ConfigSnapshot FINAL ORDER BY last_used")
        found: dict[str, ConfiguredMetric] = {}
        for (text,) in rows:
            found.update(metrics_of(text))
        return found

    def _schema_level(self) -> int | None:
        if not self._has("TensorZeroMigration"):
            return None
        rows = self._connection.query("SELECT max(migration_id) FROM TensorZeroMigration")
        return int(rows[0][0]) if rows else None

    # -- counting --------------------------------------------------------------------------------------------

    def scope(self, request: ExportRequest) -> tables.Scope:
        """Count what there is, and what the functions, variants and times asked for leave out."""
        scope, parameters = scope_of(request)
        rows = self._connection.query(
            f"""
            SELECT count(), sum(n), countIf(NOT in_time), sumIf(n, NOT in_time),
                   countIf(in_time AND NOT is_named), sumIf(n, in_time AND NOT is_named)
            FROM (
                SELECT count() AS n, {scope.time} AS in_time, {scope.named} AS is_named
                FROM ({BOTH}) GROUP BY episode_id
            )
            """,
            parameters,
        )
        return tables.Scope(*(int(value or 0) for value in rows[0]))

    def text_bytes(self) -> int:
        """Roughly how many bytes of text the steps of the whole database hold; 0 when it does not tell."""
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
        chosen = (
            f"episode_id IN (SELECT episode_id FROM ({BOTH}) GROUP BY episode_id"
            f" HAVING {scope.time} AND {scope.named})"
        )
        columns = f"""
            toString(id) AS id_text, toString(episode_id) AS episode_text, function_name, variant_name,
            {_IS_EVAL} AS is_eval, tags['trajkit.purpose'] = 'train' AS is_train,
            {" + ".join(bits) or "toUInt64(0)"} AS tag_match, {SLOT.format("episode_id")} AS slot
        """
        both = " UNION ALL ".join(
            f"SELECT {columns} FROM {table} WHERE {chosen}" for table in ("JsonInference", "ChatInference")
        )
        return self._connection.stream(both, tables.INDEX, parameters)

    def measured(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the latest value per target of the metrics in the request.

        A 32-bit value travels as its shortest decimal, so that a logged 0.7 arrives as 0.7.
        """
        queries = [
            f"""SELECT metric_name, toString(target_id) AS target, argMax({value}, toUInt128(id)) AS latest
                FROM {table} WHERE metric_name IN {{names:Array(String)}} GROUP BY metric_name, target_id"""
            for table, value in (
                ("FloatMetricFeedback", "toFloat64(toString(value))"),
                ("BooleanMetricFeedback", "toFloat64(value)"),
            )
        ]
        names = {"names": [condition.name for condition in request.metrics]}
        return self._connection.stream(
            f"SELECT metric_name, target AS target_id, latest AS value FROM ({' UNION ALL '.join(queries)})",
            tables.MEASURED,
            names,
        )

    def eval_targets(self) -> Iterator[pa.RecordBatch]:
        """Stream the targets of feedback that is tagged as evaluation."""
        marked = "tags['trajkit.purpose'] = 'eval'"
        both = " UNION ALL ".join(
            f"SELECT {target} AS target FROM {table} WHERE {marked}"
            for table, target in (
                ("FloatMetricFeedback", "target_id"),
                ("BooleanMetricFeedback", "target_id"),
                ("CommentFeedback", "target_id"),
                ("DemonstrationFeedback", "inference_id"),
            )
        )
        return self._connection.stream(
            f"SELECT DISTINCT toString(target) AS target_id FROM ({both})", tables.EVAL_TARGETS
        )

    def abandoned(self) -> Iterator[pa.RecordBatch]:
        """Stream the episodes that a rollout marked as abandoned, each with its reason."""
        return self._connection.stream(
            f"""
            SELECT toString(target_id) AS target, argMax(tags['{ABANDONED_TAG}'], toUInt128(id))
            FROM CommentFeedback WHERE mapContains(tags, '{ABANDONED_TAG}') GROUP BY target_id
            """,
            tables.ABANDONED,
        )

    def inferences(self, episode_ids: pa.Table | None, n_buckets: int) -> Iterator[pa.RecordBatch]:
        """Stream the inferences of these episodes; None for all."""

        def of(table: str, function_type: str, auxiliary: str, tool_params: str) -> str:
            snapshot = "lower(hex(snapshot_hash))" if self._has(table, "snapshot_hash") else "NULL"
            return f"""
                SELECT id, episode_id AS episode, '{function_type}' AS function_type, input, output,
                       {auxiliary}, {tool_params}, tags, processing_time_ms,
                       {snapshot} AS snapshot
                FROM {table} {in_chosen("episode_id", episode_ids)}
            """

        auxiliary = self._or_null("JsonInference", "auxiliary_content")
        return self._connection.stream(
            f"""
            SELECT toString(id) AS inference_id, toString(episode) AS episode_id, function_type, input,
                   output, auxiliary_content, tool_params,
                   toJSONString(mapSort(mapFilter((k, v) -> k != 'trajkit.step', tags))) AS tags_text,
                   toInt64OrNull(tags['trajkit.step']) AS env_step, processing_time_ms,
                   snapshot AS snapshot_hash, {bucket("episode", n_buckets)} AS bucket
            FROM (
                {of("JsonInference", "json", auxiliary, "NULL AS tool_params")}
                UNION ALL
                {of("ChatInference", "chat", "NULL AS auxiliary_content", "tool_params")}
            )
            """,
            tables.INFERENCES,
            chosen=episode_ids,
        )

    def model_inferences(self, episode_ids: pa.Table | None, n_buckets: int) -> Iterator[pa.RecordBatch]:
        """Stream the model calls of the inferences of these episodes; None for all."""
        cost = "toFloat64(cost)" if self._has("ModelInference", "cost") else "NULL"
        finish_reason = self._or_null("ModelInference", "finish_reason", "toString(finish_reason)")
        of_chosen = " UNION ALL ".join(
            f"SELECT id, {bucket('episode_id', n_buckets)} AS bucket FROM {table}"
            f" {in_chosen('episode_id', episode_ids)}"
            for table in ("JsonInference", "ChatInference")
        )
        return self._connection.stream(
            f"""
            SELECT toString(inference_id) AS inference_id, toString(m.id) AS model_inference_id, model_name,
                   model_provider_name, {self._or_null("ModelInference", "system")},
                   {self._or_null("ModelInference", "input_messages")},
                   {self._or_null("ModelInference", "output")}, input_tokens, output_tokens,
                   {cost} AS cost_usd, {finish_reason}, {self._or_null("ModelInference", "cached")},
                   i.bucket AS bucket
            FROM ModelInference AS m INNER JOIN ({of_chosen}) AS i ON m.inference_id = i.id
            """,
            tables.MODEL_INFERENCES,
            chosen=episode_ids,
        )

    def feedback(self, episode_ids: pa.Table | None) -> Iterator[pa.RecordBatch]:
        """Stream all feedback on these episodes and their inferences; None for all."""

        def on_chosen(target: str) -> str:
            if episode_ids is None:
                return ""
            episodes = "SELECT toUUID(episode_id) FROM chosen"
            return f"WHERE {target} IN ({episodes} UNION ALL {ids_of_chosen(episode_ids)})"

        queries = " UNION ALL ".join(
            f"SELECT id, {target} AS target, '{kind}' AS kind, {name} AS metric, {value} AS value_json, tags"
            f" FROM {table} {on_chosen(target)}"
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
                       metric AS metric_name, value_json AS value, tags FROM ({queries})""",
            tables.FEEDBACK,
            chosen=episode_ids,
        )

    def prompts(self, inference_ids: list[str]) -> Iterator[pa.RecordBatch]:
        """Stream the model calls of these inferences (the columns of `MODEL_INFERENCES`)."""
        chosen = pa.table({"episode_id": pa.array(inference_ids, pa.string())})
        return self._connection.stream(
            """
            SELECT toString(inference_id) AS inference_id, toString(id) AS model_inference_id, model_name,
                   model_provider_name, system, input_messages, output, input_tokens, output_tokens,
                   NULL AS cost_usd, toString(finish_reason) AS finish_reason, cached, 0 AS bucket
            FROM ModelInference WHERE inference_id IN (SELECT toUUID(episode_id) FROM chosen)
            """,
            tables.MODEL_INFERENCES,
            chosen=chosen,
        )

    def row_ids(self, episode_ids: list[str]) -> Iterator[pa.RecordBatch]:
        """Stream the ids of the inferences of these episodes and of the feedback on them."""
        chosen = pa.table({"episode_id": pa.array(episode_ids, pa.string())})
        both = " UNION ALL ".join(
            f"SELECT {column} AS episode, id FROM {table} {in_chosen(column, chosen)}"
            for table, column in (
                ("JsonInference", "episode_id"),
                ("ChatInference", "episode_id"),
                ("FloatMetricFeedback", "target_id"),
                ("BooleanMetricFeedback", "target_id"),
            )
        )
        return self._connection.stream(
            f"SELECT toString(episode) AS episode_text, toString(id) AS id_text FROM ({both})",
            tables.ROW_IDS,
            chosen=chosen,
        )

    # -- plumbing --------------------------------------------------------------------------------------------

    def _has(self, table: str, column: str | None = None) -> bool:
        return self._connection.has(table, column)

    def _or_null(self, table: str, column: str, expression: str | None = None) -> str:
        """The column, or null where the database is from before it existed."""
        return f"{(expression or column) if self._has(table, column) else 'NULL'} AS {column}"


def _check_known(what: str, asked: Iterable[str], known: set[str]) -> None:
    for name in asked:
        if name not in known:
            raise QueryError(
                f"no {what} {name!r} in this database",
                hint=f"known: {', '.join(sorted(known)) or 'none'}",
            )
