"""Stream the tables of TensorZero's Postgres as Arrow batches, filtered in the database.

An inference is stored in two tables: a narrow one, and one with its payload, which may have expired earlier.
An inference with an expired payload has null in every column of the payload. There is no `tool_params`: a
function's own tools are in its configuration only.
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
from trajkit.sources.tensorzero.connect import jsonb, tables
from trajkit.sources.tensorzero.connect.known import check_names, known_metrics
from trajkit.sources.tensorzero.connect.postgres.clauses import (
    FEEDBACK_TARGETS,
    INFERENCE_TABLES,
    IS_EVAL,
    NUMBER,
    Values,
    as_of_of,
    both,
    chosen_values,
    episodes_in_scope,
    hex_of,
    is_seen,
    least_id,
    scope_of,
)
from trajkit.sources.tensorzero.connect.postgres.connection import Connection, bound, bound_ids, bound_list
from trajkit.sources.tensorzero.connect.postgres.queries import (
    MAY_BE_ON,
    ON_IN_A_CONFIGURATION,
    calls_query,
    feedback_query,
    inferences_query,
)
from trajkit.sources.tensorzero.connect.slot import in_postgres
from trajkit.sources.tensorzero.export.config import ConfiguredMetric
from trajkit.sources.tensorzero.export.json_mode import WIRE_PATTERN, wire_system
from trajkit.store.layout import quoted

REQUIRED = (
    *INFERENCE_TABLES,
    "json_inference_data",
    "chat_inference_data",
    "model_inferences",
    "model_inference_data",
    "float_metric_feedback",
    "boolean_metric_feedback",
    "comment_feedback",
    "demonstration_feedback",
)
"""The tables that every TensorZero database has."""

_PAYLOADS = ("json_inference_data", "chat_inference_data", "model_inference_data")


_RESPELLED_INFERENCE = {
    **{
        name: jsonb.compact(name)
        for name in ("auxiliary_content", "dynamic_tools", "dynamic_provider_tools", "tags")
    },
    **{name: jsonb.messages(name) for name in ("input", "output")},
}
_RESPELLED_CALL = {name: jsonb.messages(name) for name in ("input_messages", "output")}


class Postgres:
    """A TensorZero database in Postgres, read only.

    Args:
        url: `postgresql://user:password@host:port/database`.
        access: Limits on its queries on the server.

    Raises:
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: adbc-driver-postgresql is not installed.
    """

    source_name = "tensorzero-postgres"
    has_id_bytes = False
    read_at = None
    heads = None

    def __init__(self, url: str, access: Access = Access()) -> None:  # noqa: B008 -- frozen
        self._connection = Connection(url, access)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def describe(self) -> JsonObject:
        """Where this is, without credentials."""
        level = self._schema_level()
        return {"kind": self.source_name, "url": self._connection.address.shown, "schema_level": level}

    # -- what there is ---------------------------------------------------------------------------------------

    def check(self, request: ExportRequest) -> None:
        """Raise unless the tables are there and the request names known functions, variants and metrics."""
        missing = [table for table in REQUIRED if not self._connection.has(table)]
        if missing:
            raise ServiceError(
                f"{self._connection.address.shown} is not a TensorZero database that this user may read:"
                f" missing {', '.join(f'tensorzero.{table}' for table in missing)}",
                hint="the database is the last part of the URL, such as …:5432/tensorzero;"
                " reading needs USAGE on the schema tensorzero, and SELECT on its tables",
            )
        names = self._connection.query(
            " UNION ".join(
                f"SELECT DISTINCT function_name, variant_name FROM tensorzero.{table}"
                for table in INFERENCE_TABLES
            )
        )
        check_names(request, [(row[0], row[1]) for row in names], self.metrics())

    def metrics(self) -> dict[str, ConfiguredMetric]:
        """The metrics that were ever logged, with what the newest configuration says about them."""
        configurations = []
        if self._connection.has("config_snapshots"):
            rows = self._connection.query("SELECT config FROM tensorzero.config_snapshots ORDER BY last_used")
            configurations = [row[0] for row in rows]
        logged = self._connection.query(
            "SELECT DISTINCT metric_name, 'float' FROM tensorzero.float_metric_feedback"
            " UNION ALL SELECT DISTINCT metric_name, 'boolean' FROM tensorzero.boolean_metric_feedback"
        )
        return known_metrics(configurations, [(row[0], row[1]) for row in logged])

    def _schema_level(self) -> int | None:
        """The newest migration, where this user may read the table that records it."""
        found = self._connection.query(
            """
            SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relname = '_sqlx_migrations' AND has_table_privilege(c.oid, 'SELECT')
                AND has_schema_privilege(n.oid, 'USAGE') AND n.nspname IN ('public', 'tensorzero')
            """
        )
        levels = [
            self._connection.query(f"SELECT max(version) FROM {quoted(schema)}._sqlx_migrations")
            for (schema,) in found
        ]
        return max((int(rows[0][0]) for rows in levels if rows[0][0] is not None), default=None)

    # -- counting --------------------------------------------------------------------------------------------

    def scope(self, request: ExportRequest) -> tables.Scope:
        """Count all rows, and those that the requested functions, variants and times leave out."""
        scope, values = scope_of(request)
        ever = request.model_copy(update={"as_of": None})
        rows = self._connection.query(
            f"""
            SELECT count(*) FILTER (WHERE n > 0), sum(n)::bigint,
                   count(*) FILTER (WHERE n > 0 AND NOT in_time),
                   (sum(n) FILTER (WHERE NOT in_time))::bigint,
                   count(*) FILTER (WHERE n > 0 AND in_time AND NOT is_named),
                   (sum(n) FILTER (WHERE in_time AND NOT is_named))::bigint,
                   count(*) FILTER (WHERE n = 0), sum(n_later)::bigint
            FROM (
                SELECT count(*) FILTER (WHERE is_seen) AS n, count(*) FILTER (WHERE NOT is_seen) AS n_later,
                       -- the rows that are seen are the first ones
                       {scope.time} AS in_time, bool_or(is_seen AND {scope.named_row}) AS is_named
                FROM (SELECT *, {is_seen(request)} AS is_seen FROM ({both(ever)}) AS b) AS s
                GROUP BY episode_id
            ) AS e
            """,
            values,
        )
        return tables.Scope(*(int(value or 0) for value in rows[0]))

    def text_bytes(self) -> int:
        """Roughly how many bytes of text the steps of the whole database hold.

        Postgres mostly compresses columns that are not read: the requests and responses of models.
        """
        rows = self._connection.query(
            "SELECT sum(pg_table_size(relid))::bigint FROM ("
            + " UNION ALL ".join(
                f"SELECT relid FROM pg_partition_tree('tensorzero.{table}'::regclass) WHERE isleaf"
                for table in _PAYLOADS
            )
            + ") AS t"
        )
        return int(rows[0][0] or 0)

    # -- streams ---------------------------------------------------------------------------------------------

    def index(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream one narrow row per inference of the episodes in scope."""
        scope, values = scope_of(request)
        bits = []
        for number, (key, value) in enumerate(request.tags.items()):
            values |= {f"key_{number}": key, f"value_{number}": value}
            wanted = f"tags->>{bound(f'key_{number}')} IS NOT DISTINCT FROM {bound(f'value_{number}')}"
            bits.append(f"(({wanted})::int::bigint << {number})")
        columns = f"""
            id::text, episode_id::text, function_name, variant_name, {IS_EVAL},
            tags->>'trajkit.purpose' IS NOT DISTINCT FROM 'train', {" | ".join(bits) or "0::bigint"},
            {in_postgres("episode_id")}
        """
        queries = self._of_inferences(request, columns)
        return self._connection.stream(
            f"WITH in_scope AS MATERIALIZED ({episodes_in_scope(request, scope)}) {queries}",
            tables.INDEX,
            values,
        )

    def tag_values(self, request: ExportRequest, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the values of these tags on the inferences of the episodes in scope."""
        scope, values = scope_of(request)
        queries = self._of_inferences(
            request,
            "id::text, key, tags->>key",
            f"CROSS JOIN unnest({bound_list('tag_keys')}) AS key",
            "tags ? key",
        )
        return self._connection.stream(
            f"WITH in_scope AS MATERIALIZED ({episodes_in_scope(request, scope)}) {queries}",
            tables.TAG_VALUES,
            values | {"tag_keys": list(keys)},
        )

    def _of_inferences(
        self, request: ExportRequest, columns: str, joined: str = "", condition: str = "true"
    ) -> str:
        return " UNION ALL ".join(
            f"SELECT {columns} FROM tensorzero.{table} {joined}"
            f" WHERE {is_seen(request)} AND {condition} AND episode_id IN (SELECT id FROM in_scope)"
            for table in INFERENCE_TABLES
        )

    def measured(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the latest value per target of the metrics in the request, in single precision."""
        queries = " UNION ALL ".join(
            f"""(SELECT DISTINCT ON (metric_name, target_id) metric_name, target_id::text, {value}
                 FROM tensorzero.{table} WHERE metric_name = ANY({bound_list("names")}) AND {is_seen(request)}
                 ORDER BY metric_name, target_id, id DESC)"""
            for table, value in (
                ("float_metric_feedback", NUMBER),
                ("boolean_metric_feedback", "value::int::float8"),
            )
        )
        names: Values = {"names": [condition.name for condition in request.metrics], **as_of_of(request)}
        return self._connection.stream(queries, tables.MEASURED, names)

    def eval_targets(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the targets of feedback that is tagged as evaluation."""
        queries = " UNION ".join(
            f"SELECT {target}::text FROM tensorzero.{table}"
            f" WHERE tags->>'trajkit.purpose' = 'eval' AND {is_seen(request)}"
            for table, target in FEEDBACK_TARGETS
        )
        return self._connection.stream(queries, tables.EVAL_TARGETS, as_of_of(request))

    def abandoned(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the episodes that a rollout marked as abandoned, each with its reason."""
        return self._connection.stream(
            f"""
            SELECT DISTINCT ON (target_id) target_id::text, tags->>'{ABANDONED_TAG}'
            FROM tensorzero.comment_feedback WHERE tags ? '{ABANDONED_TAG}' AND {is_seen(request)}
            ORDER BY target_id, id DESC
            """,
            tables.ABANDONED,
            as_of_of(request),
        )

    def demonstrated(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the inferences that have a demonstration."""
        return self._connection.stream(
            "SELECT DISTINCT inference_id::text FROM tensorzero.demonstration_feedback"
            f" WHERE {is_seen(request)}",
            tables.DEMONSTRATED,
            as_of_of(request),
        )

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream the inferences of these episodes; None for all."""
        stream = self._connection.stream(
            inferences_query(episode_ids, n_buckets, request),
            tables.INFERENCES,
            as_of_of(request) | chosen_values(episode_ids),
        )
        return jsonb.respelled(stream, tables.INFERENCES, _RESPELLED_INFERENCE)

    def model_inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream the model calls of the inferences of these episodes; None for all."""
        has_cost = self._connection.has("model_inferences", "cost")
        stream = self._connection.stream(
            calls_query(episode_ids, n_buckets, request, system=self._system(), has_cost=has_cost),
            tables.MODEL_INFERENCES,
            as_of_of(request) | chosen_values(episode_ids),
        )
        return jsonb.respelled(stream, tables.MODEL_INFERENCES, _RESPELLED_CALL)

    def _system(self) -> str:
        """The system message as it was sent; `raw_request` is read only where JSON mode may have been on."""
        configured = [ON_IN_A_CONFIGURATION] if self._connection.has("config_snapshots") else []
        may_be_on = any(self._connection.query(sql) for sql in (*configured, *MAY_BE_ON))
        return wire_system(f"d.raw_request ~ '{WIRE_PATTERN}'") if may_be_on else "d.system"

    def raw_requests(self, model_inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the raw requests of these model calls."""
        return self._connection.stream(
            f"""
            SELECT id::text, raw_request FROM tensorzero.model_inference_data
            WHERE id IN ({bound_ids("calls", len(model_inference_ids))}) AND raw_request <> ''
            """,
            tables.RAW_REQUESTS,
            {"calls": ",".join(model_inference_ids)},
        )

    def feedback(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream all feedback on these episodes and their inferences; None for all."""
        stream = self._connection.stream(
            feedback_query(episode_ids, request),
            _UNMAPPED_FEEDBACK,
            as_of_of(request) | chosen_values(episode_ids),
        )
        return jsonb.respelled(stream, tables.FEEDBACK, {"tags": jsonb.tags("tags")})

    def new_feedback(self, since: datetime, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the ids and targets of the feedback that was logged then or later."""
        queries = " UNION ALL ".join(
            f"SELECT id::text, {target}::text FROM tensorzero.{table}"
            f" WHERE id >= {bound('new_since')}::uuid AND {is_seen(request)}"
            for table, target in FEEDBACK_TARGETS
        )
        values = as_of_of(request) | {"new_since": least_id(since)}
        return self._connection.stream(queries, tables.NEW_FEEDBACK, values)

    def snapshots(self) -> Iterator[pa.RecordBatch]:
        """Stream the configurations that inferences were made with, the one used last at the end."""
        if not self._connection.has("config_snapshots"):
            return iter(())
        stream = self._connection.stream(
            f"SELECT {hex_of('hash')}, config, extra_templates::text FROM tensorzero.config_snapshots"
            " ORDER BY last_used",
            _texts(tables.SNAPSHOTS),
        )
        return jsonb.respelled(stream, tables.SNAPSHOTS, {"templates": jsonb.tags("templates")})

    def tasks(self) -> Iterator[pa.RecordBatch]:
        """Stream the episodes of workflow evaluations with their tasks."""
        if not self._connection.has("workflow_evaluation_run_episodes"):
            return iter(())
        stream = self._connection.stream(
            """
            SELECT episode_id::text, run_id::text, task_name, tags::text
            FROM tensorzero.workflow_evaluation_run_episodes WHERE staled_at IS NULL
            """,
            _texts(tables.TASKS),
        )
        return jsonb.respelled(stream, tables.TASKS, {"tags": jsonb.tags("tags")})


def _texts(schema: pa.Schema) -> pa.Schema:
    """A schema with texts for maps: so they come from the database."""
    return pa.schema(
        [pa.field(field.name, pa.string() if pa.types.is_map(field.type) else field.type) for field in schema]
    )


_UNMAPPED_FEEDBACK = _texts(tables.FEEDBACK)
