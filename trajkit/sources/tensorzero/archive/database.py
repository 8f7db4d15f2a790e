"""An archive in the place of the database that it was made from: the same streams, from Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.archive.clauses import (
    IS_EVAL,
    bucket,
    in_chosen,
    in_scope,
    is_seen,
    rounded_up,
    scope_of,
)
from trajkit.sources.tensorzero.archive.files import ArchiveFiles
from trajkit.sources.tensorzero.archive.local import scan
from trajkit.sources.tensorzero.connect import jsonb, tables
from trajkit.sources.tensorzero.connect.known import check_names, known_metrics
from trajkit.sources.tensorzero.connect.slot import in_duckdb
from trajkit.sources.tensorzero.export.config import ConfiguredMetric
from trajkit.sources.tensorzero.export.json_mode import (
    ON_IN_CONFIG,
    ON_IN_PARAMETERS,
    WIRE_PATTERN,
    wire_system,
)
from trajkit.store.engine import literal

_TEXTS = ("input", "output", "system", "input_messages", "tool_params")


class ArchiveDatabase:
    """A TensorZero database as its archive has it.

    Args:
        folder: The archive.

    Raises:
        StoreError: It is not an archive, is of a newer version, or a file is missing or of another size.
    """

    source_name = "tensorzero-archive"
    has_id_bytes = False
    heads = None

    def __init__(self, folder: Path) -> None:
        self._files = ArchiveFiles(folder)

    def close(self) -> None:
        """Let go of the files."""
        self._files.close()

    @property
    def read_at(self) -> datetime:
        """When the database was read: what was logged later is not here."""
        return self._files.manifest.as_of

    def describe(self) -> JsonObject:
        """Where this is from, without credentials."""
        return {
            "kind": self.source_name,
            "url": self._files.manifest.source.get("url"),
            "schema_level": self._files.manifest.source.get("schema_level"),
        }

    # -- what there is ---------------------------------------------------------------------------------------

    def check(self, request: ExportRequest) -> None:
        """Raise unless the request names known functions, variants and metrics."""
        names = self._files.rows("SELECT DISTINCT function_name, variant_name FROM inference")
        check_names(request, [(row[0], row[1]) for row in names], self.metrics())

    def metrics(self) -> dict[str, ConfiguredMetric]:
        """The metrics that were ever logged, with what the newest configuration says about them."""
        configurations = self._files.rows("SELECT config FROM config_snapshot ORDER BY last_used")
        logged = self._files.rows(
            "SELECT DISTINCT metric_name, 'float' FROM float_feedback"
            " UNION ALL SELECT DISTINCT metric_name, 'boolean' FROM boolean_feedback"
        )
        return known_metrics([row[0] for row in configurations], [(row[0], row[1]) for row in logged])

    def scope(self, request: ExportRequest) -> tables.Scope:
        """Count what there is, and what the functions, variants and times asked for leave out."""
        time, named, parameters = scope_of(request)
        (row,) = self._files.rows(
            f"""
            SELECT count(*) FILTER (n > 0), sum(n),
                   count(*) FILTER (n > 0 AND NOT in_time), sum(n) FILTER (NOT in_time),
                   count(*) FILTER (n > 0 AND in_time AND NOT is_named),
                   sum(n) FILTER (in_time AND NOT is_named),
                   count(*) FILTER (n = 0), sum(n_later)
            FROM (
                SELECT count(*) FILTER (is_seen) AS n, count(*) FILTER (NOT is_seen) AS n_later,
                       -- the rows that are seen are the first ones
                       {time} AS in_time, count(*) FILTER (is_seen AND {named}) > 0 AS is_named
                FROM (SELECT *, {is_seen(request)} AS is_seen FROM inference) GROUP BY episode_id
            )
            """,
            parameters,
        )
        return tables.Scope(*(int(value or 0) for value in row))

    def text_bytes(self) -> int:
        """How many bytes of text the steps hold."""
        names = ("json_inference", "chat_inference", "model_inference")
        paths = [path for name in names for path in self._files.paths(name)]
        if not paths:
            return 0
        files = scan(paths).removeprefix("read_parquet")
        columns = ", ".join(map(literal, _TEXTS))
        ((n_bytes,),) = self._files.rows(
            f"SELECT sum(total_uncompressed_size) FROM parquet_metadata{files}"
            f" WHERE path_in_schema IN ({columns})"
        )
        return int(n_bytes or 0)

    # -- streams ---------------------------------------------------------------------------------------------

    def index(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream one narrow row per inference of the episodes in scope."""
        scope, parameters = in_scope(request)
        bits = []
        for number, (key, value) in enumerate(request.tags.items()):
            parameters |= {f"key_{number}": key, f"value_{number}": value}
            wanted = f"tag_of(tags, $key_{number}) IS NOT DISTINCT FROM $value_{number}"
            bits.append(f"(({wanted})::UBIGINT << {number})")
        return self._files.stream(
            f"""
            SELECT id, episode_id, function_name, variant_name, coalesce({IS_EVAL}, false),
                   coalesce(tag_of(tags, 'trajkit.purpose') = 'train', false),
                   ({" + ".join(bits) or "0"})::UBIGINT, {in_duckdb("episode_id")}, marks
            FROM inference WHERE {scope}
            """,
            tables.INDEX,
            parameters,
            is_marked=True,
        )

    def tag_values(self, request: ExportRequest, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the values of these tags on the inferences of the episodes in scope."""
        scope, parameters = in_scope(request)
        return self._files.stream(
            f"""
            SELECT id, key, tag_of(tags, key) FROM inference CROSS JOIN (SELECT unnest($keys) AS key)
            WHERE tag_of(tags, key) IS NOT NULL AND {scope}
            """,
            tables.TAG_VALUES,
            parameters | {"keys": list(keys)},
        )

    def measured(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the latest value per target of the metrics in the request."""
        queries = " UNION ALL ".join(
            f"SELECT metric_name, target_id, arg_max({value}, id) AS value FROM {table}"
            f" WHERE metric_name IN (SELECT unnest($names)) AND {is_seen(request)}"
            " GROUP BY metric_name, target_id"
            for table, value in (
                ("float_feedback", "shortest(value)::DOUBLE"),
                ("boolean_feedback", "value::INT::DOUBLE"),
            )
        )
        names = [condition.name for condition in request.metrics]
        return self._files.stream(queries, tables.MEASURED, {"names": names})

    def eval_targets(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the targets of feedback that is tagged as evaluation."""
        return self._files.stream(
            "SELECT DISTINCT target_id FROM feedback"
            f" WHERE tag_of(tags, 'trajkit.purpose') = 'eval' AND {is_seen(request)}",
            tables.EVAL_TARGETS,
        )

    def abandoned(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the episodes that a rollout marked as abandoned, each with its reason."""
        reason = f"tag_of(tags, '{ABANDONED_TAG}')"
        return self._files.stream(
            f"SELECT target_id, arg_max({reason}, id) FROM comment_feedback"
            f" WHERE {reason} IS NOT NULL AND {is_seen(request)} GROUP BY target_id",
            tables.ABANDONED,
        )

    def demonstrated(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the inferences that somebody gave a better answer for."""
        return self._files.stream(
            f"SELECT DISTINCT inference_id FROM demonstration_feedback WHERE {is_seen(request)}",
            tables.DEMONSTRATED,
        )

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream the inferences of these episodes; None for all."""
        json, blocks = self._respelling(jsonb.compact), self._respelling(jsonb.messages)
        tools = ", ".join(json(f"as_list({name})") for name in ("dynamic_tools", "dynamic_provider_tools"))
        return self._files.stream(
            f"""
            SELECT id, episode_id, function_type, {blocks("input")}, {blocks("output")},
                   {json("auxiliary_content")}, tool_params, {tools}, allowed_tools, tool_choice,
                   parallel_tool_calls, as_object(tags), whole_number(tag_of(tags, 'trajkit.step')),
                   processing_time_ms, snapshot_hash, {bucket(n_buckets)}, marks
            FROM inference WHERE {in_chosen(episode_ids)} AND {is_seen(request)}
            """,
            tables.INFERENCES,
            chosen=episode_ids,
            is_marked=True,
        )

    def model_inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream the model calls of the inferences of these episodes; None for all."""
        blocks = self._respelling(jsonb.messages)
        matches = f"regexp_matches(raw_request, {literal(WIRE_PATTERN)})"
        system = wire_system(matches) if self._may_have_json_mode() else "system"
        return self._files.stream(
            f"""
            SELECT inference_id, m.id, model_name, model_provider_name, {system},
                   {blocks("input_messages")}, {blocks("output")}, input_tokens, output_tokens,
                   cost::DOUBLE, finish_reason, cached, response_time_ms, ttft_ms, i.bucket,
                   marks_of(not_utf8)
            FROM model_inference AS m JOIN (
                SELECT id::UUID AS id, {bucket(n_buckets)} AS bucket FROM inference
                WHERE {in_chosen(episode_ids)} AND {is_seen(request)}
            ) AS i ON m.inference_id::UUID = i.id
            """,
            tables.MODEL_INFERENCES,
            chosen=episode_ids,
            is_marked=True,
        )

    def raw_requests(self, model_inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream what went over the wire in these model calls."""
        return self._files.stream(
            "SELECT id, raw_request FROM model_inference"
            " WHERE id IN (SELECT episode_id FROM chosen) AND raw_request <> ''",
            tables.RAW_REQUESTS,
            chosen=pa.table({"episode_id": pa.array(model_inference_ids, pa.string())}),
        )

    def feedback(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream all feedback on these episodes and their inferences; None for all."""
        on_chosen = "true"
        if episode_ids is not None:
            of_chosen = f"SELECT id FROM inference WHERE {in_chosen(episode_ids)}"
            on_chosen = f"target_id IN (SELECT episode_id FROM chosen UNION ALL {of_chosen})"
        # ClickHouse's floats have 32 bits: there is nothing more exact
        exact = (
            "CASE WHEN shortest(number)::DOUBLE <> number THEN number END" if self._is_postgres else "NULL"
        )
        return self._files.stream(
            f"SELECT id, target_id, kind, metric_name, value, tags, {exact}, marks FROM feedback"
            f" WHERE {on_chosen} AND {is_seen(request)}",
            tables.FEEDBACK,
            chosen=episode_ids,
            is_marked=True,
        )

    def new_feedback(self, since: datetime, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the ids and targets of the feedback that was logged then or later."""
        return self._files.stream(
            f"SELECT id, target_id FROM feedback WHERE ms_of(id) >= {rounded_up(since)}"
            f" AND {is_seen(request)}",
            tables.NEW_FEEDBACK,
        )

    def snapshots(self) -> Iterator[pa.RecordBatch]:
        """Stream the configurations that inferences were made with, the one used last at the end."""
        return self._files.stream(
            "SELECT hash, config, coalesce(templates, []) FROM config_snapshot ORDER BY last_used",
            tables.SNAPSHOTS,
        )

    def tasks(self) -> Iterator[pa.RecordBatch]:
        """Stream the episodes of workflow evaluations with their tasks."""
        return self._files.stream(
            "SELECT episode_id, run_id, task_name, coalesce(tags, []) FROM evaluation_episode", tables.TASKS
        )

    # -- plumbing --------------------------------------------------------------------------------------------

    @property
    def _is_postgres(self) -> bool:
        return self._files.manifest.source.get("kind") == "tensorzero-postgres"

    def _respelling(self, spelled: Callable[[str], str]) -> Callable[[str], str]:
        """What spells a column of JSON as TensorZero does, where a database spells it in its own way."""
        return spelled if self._is_postgres else lambda column: column

    def _may_have_json_mode(self) -> bool:
        """Whether JSON mode may have been on for any inference: it may where the configuration is unknown."""
        on = ON_IN_PARAMETERS.replace(":", ": ") if self._is_postgres else ON_IN_PARAMETERS
        ((is_on,),) = self._files.rows(
            f"""
            SELECT EXISTS (FROM json_inference WHERE snapshot_hash IS NULL)
                OR EXISTS (FROM config_snapshot WHERE contains(config, {literal(ON_IN_CONFIG)}))
                OR EXISTS (FROM inference WHERE contains(inference_params, {literal(on)}))
            """
        )
        return bool(is_on)
