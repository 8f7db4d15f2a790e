"""Stream the tables of a TensorZero database of any kind as Arrow batches, filtered in the database.

Ids are UUIDv7. They are compared by their times, in milliseconds; time columns are not used, as some have a
resolution of one second. The columns of an expired payload are null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.access import Access
from trajkit.sources.request import ExportRequest, refuse_unknown
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.clickhouse.dialect import ClickHouse
from trajkit.sources.tensorzero.connect.clickhouse.heads import Heads
from trajkit.sources.tensorzero.connect.dialect import (
    EVAL,
    FEEDBACK,
    INFERENCES,
    PURPOSE,
    Dialect,
    columns,
    milliseconds,
)
from trajkit.sources.tensorzero.connect.url import parse_url
from trajkit.sources.tensorzero.connect.wide import Wanted, system_sent
from trajkit.sources.tensorzero.export.config import ConfiguredMetric, metrics_of

_METRICS = ("float", "boolean")


class TensorZero:
    """A TensorZero database, read only. It must be closed.

    A request with an as-of time hides every inference and feedback whose id was made later, in every
    method that takes the request.

    Args:
        dialect: Its dialect, on a connection to it.
        read_at: When its content was read; None for a live database.
    """

    def __init__(self, dialect: Dialect, *, read_at: datetime | None = None) -> None:
        self.dialect = dialect
        self.read_at = read_at
        self.source_name = dialect.source_name
        """The value of `Episode.source`."""
        self.has_id_bytes = dialect.has_id_bytes
        """Whether wide rows are `INFERENCES_OF_BYTES` and `MODEL_INFERENCES_OF_BYTES`, not of texts."""
        self._metrics: dict[str, ConfiguredMetric] | None = None

    @property
    def heads(self) -> Heads | None:
        """The same rows without the heads of their long texts; None if it cannot leave those out."""
        return Heads(self.dialect) if isinstance(self.dialect, ClickHouse) else None

    def close(self) -> None:
        """Close the connection."""
        self.dialect.connection.close()

    def describe(self) -> JsonObject:
        """Return its address without credentials."""
        return self.dialect.describe()

    # -- what there is ---------------------------------------------------------------------------------------

    def check(self, request: ExportRequest) -> None:
        """Raise unless the tables exist and the request names known functions, variants and metrics."""
        if missing := self.dialect.missing():
            raise self.dialect.refusal(missing)
        pairs = self.dialect.connection.query(
            " UNION ALL ".join(
                f"SELECT DISTINCT function_name, variant_name FROM {self.dialect.table(table)}"
                for table in INFERENCES.values()
            )
        )
        functions = {function for function, _ in pairs}
        variants = {
            variant for function, variant in pairs if not request.functions or function in request.functions
        }
        metrics = [condition.name for condition in request.metrics]
        refuse_unknown("function", (*request.functions, *request.train_functions), functions, "database")
        refuse_unknown("variant", request.variants, variants, "database")
        refuse_unknown("metric", metrics, self.metrics(), "database")

    def metrics(self) -> dict[str, ConfiguredMetric]:
        """The metrics that were ever logged, with their newest configuration; read once."""
        if self._metrics is None:
            query, table = self.dialect.connection.query, self.dialect.table
            configured: dict[str, ConfiguredMetric] = {}
            if self.dialect.has("config_snapshot"):
                for (text,) in query(f"SELECT config FROM {table('config_snapshot')} ORDER BY last_used"):
                    configured.update(metrics_of(text))
            logged = query(
                " UNION ALL ".join(
                    f"SELECT DISTINCT metric_name, '{kind}' FROM {table(FEEDBACK[kind][0])}"
                    for kind in _METRICS
                )
            )
            unconfigured = ConfiguredMetric(kind="float", level=None, optimize=None)
            self._metrics = dict(configured)
            for name, kind in logged:  # the logged rows show the kind
                self._metrics[name] = configured.get(name, unconfigured)._replace(kind=kind)
        return self._metrics

    def scope(self, request: ExportRequest) -> tables.Scope:
        """Count all rows, and those that the requested functions, variants and times leave out."""
        scope = self.dialect.scope(request)
        rows = " UNION ALL ".join(
            f"SELECT id, episode_id, function_name, variant_name, {self.dialect.is_seen(request)} AS is_seen"
            f" FROM {self.dialect.table(table)}"
            for table in INFERENCES.values()
        )
        late, unnamed = "NOT in_time", "in_time AND NOT is_named"
        (row,) = self.dialect.connection.query(
            f"""
            SELECT count(*) FILTER (WHERE n > 0), {_sum("n", "n > 0")},
                   count(*) FILTER (WHERE n > 0 AND {late}), {_sum("n", late)},
                   count(*) FILTER (WHERE n > 0 AND {unnamed}), {_sum("n", unnamed)},
                   count(*) FILTER (WHERE n = 0), {_sum("n_later", "n_later > 0")}
            FROM (
                SELECT count(*) FILTER (WHERE is_seen) AS n, count(*) FILTER (WHERE NOT is_seen) AS n_later,
                       -- the rows that are seen are the first ones
                       {scope.time} AS in_time,
                       count(*) FILTER (WHERE is_seen AND {scope.named}) > 0 AS is_named
                FROM ({rows}) AS s GROUP BY episode_id
            ) AS e
            """,
            scope.values,
        )
        return tables.Scope(*(int(value or 0) for value in row))

    def text_bytes(self) -> int:
        """Return the approximate bytes of text in all steps of the database; 0 when it does not report it."""
        ((n_bytes,),) = self.dialect.connection.query(self.dialect.text_bytes)
        return int(n_bytes or 0)

    # -- narrow streams --------------------------------------------------------------------------------------

    def index(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream one narrow row per inference of the episodes in scope: `INDEX`, or `INDEX_OF_BYTES`."""
        d = self.dialect
        condition, values = d.in_scope(request)
        bits = []
        for number, (key, value) in enumerate(request.tags.items()):
            values = {**values, f"key_{number}": key, f"value_{number}": value}
            bits.append(d.bit(d.tag_is(d.bind(f"key_{number}"), d.bind(f"value_{number}")), number))
        selected = columns(
            tables.INDEX,
            d.row_id("id"),
            d.row_id("episode_id"),
            "function_name",
            "variant_name",
            d.is_eval,
            d.tag_is(PURPOSE, "'train'"),
            " + ".join(bits) or "CAST(0 AS BIGINT)",
            d.slot("episode_id"),
        )
        sql = self._of_inferences(f"{selected}{d.marks}", condition) + d.index_settings
        return d.stream(sql, tables.INDEX_OF_BYTES if d.has_id_bytes else tables.INDEX, values)

    def tag_values(self, request: ExportRequest, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the values of these tags (`TAG_VALUES`) on the inferences that `index` has."""
        d = self.dialect
        condition, values = d.in_scope(request)
        selected = columns(tables.TAG_VALUES, d.text("id"), "key", d.tag("key"))
        sql = self._of_inferences(selected, f"{d.has_tag('key')} AND {condition}", d.each("tag_keys"))
        return d.stream(sql, tables.TAG_VALUES, {**values, "tag_keys": list(keys)})

    def measured(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the latest value per target of the metrics in the request (`MEASURED`).

        A 32-bit value travels as its shortest decimal, so that a logged 0.7 arrives as 0.7.
        """
        d = self.dialect
        condition = f"{d.is_in('metric_name', 'names')} AND {d.is_seen(request)}"
        latest = " UNION ALL ".join(
            d.latest(FEEDBACK[kind][0], "metric_name, target_id", d.measured[kind], condition)
            for kind in _METRICS
        )
        selected = columns(tables.MEASURED, "metric_name", d.text("target_id"), "latest")
        names = [condition.name for condition in request.metrics]
        return d.stream(f"SELECT {selected} FROM ({latest}) AS l", tables.MEASURED, {"names": names})

    def eval_targets(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the targets of feedback that is tagged as evaluation (`EVAL_TARGETS`)."""
        condition = f"{self.dialect.tag_is(PURPOSE, EVAL)} AND {self.dialect.is_seen(request)}"
        targets = " UNION ALL ".join(
            f"SELECT {target} AS target FROM {self.dialect.table(table)} WHERE {condition}"
            for table, target in FEEDBACK.values()
        )
        return self.dialect.stream(
            f"SELECT DISTINCT {self.dialect.text('target')} AS target_ FROM ({targets}) AS t",
            tables.EVAL_TARGETS,
        )

    def abandoned(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the episodes that a rollout marked as abandoned, each with its reason (`ABANDONED`)."""
        d = self.dialect
        condition = f"{d.has_tag(_ABANDONED)} AND {d.is_seen(request)}"
        latest = d.latest("comment_feedback", "target_id", d.tag(_ABANDONED), condition)
        selected = columns(tables.ABANDONED, d.text("target_id"), "latest")
        return d.stream(f"SELECT {selected} FROM ({latest}) AS l", tables.ABANDONED)

    def demonstrated(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the inferences that have a demonstration (`DEMONSTRATED`)."""
        return self.dialect.stream(
            f"SELECT DISTINCT {self.dialect.text('inference_id')} AS target_"
            f" FROM {self.dialect.table('demonstration_feedback')} WHERE {self.dialect.is_seen(request)}",
            tables.DEMONSTRATED,
        )

    def new_feedback(self, since: datetime, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream the ids and targets of the feedback that was logged then or later (`NEW_FEEDBACK`)."""
        d = self.dialect
        condition = f"NOT {d.before(milliseconds(since))} AND {d.is_seen(request)}"
        sql = " UNION ALL ".join(
            f"SELECT {columns(tables.NEW_FEEDBACK, d.text('id'), d.text(target))}"
            f" FROM {d.table(table)} WHERE {condition}"
            for table, target in FEEDBACK.values()
        )
        return d.stream(sql, tables.NEW_FEEDBACK)

    # -- wide streams ----------------------------------------------------------------------------------------

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream the inferences of these episodes (`INFERENCES`, perhaps of bytes); None for all."""
        schema = tables.INFERENCES_OF_BYTES if self.has_id_bytes else tables.INFERENCES
        wanted = Wanted(self.dialect, episode_ids, n_buckets, request)
        return self.dialect.stream(wanted.inferences(), schema, chosen=episode_ids)

    def model_inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream their model calls (`MODEL_INFERENCES`, perhaps of bytes)."""
        schema = tables.MODEL_INFERENCES_OF_BYTES if self.has_id_bytes else tables.MODEL_INFERENCES
        wanted = Wanted(self.dialect, episode_ids, n_buckets, request)
        return self.dialect.stream(wanted.calls(system_sent(self.dialect)), schema, chosen=episode_ids)

    def raw_requests(self, model_inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream `RAW_REQUESTS` of these model calls; missing or expired ones are left out."""
        d, ids = self.dialect, tables.chosen(model_inference_ids)
        return d.stream(
            f"SELECT {columns(tables.RAW_REQUESTS, d.text('id'), 'raw_request')}"
            f" FROM {d.payload('model_inference')} WHERE {d.in_chosen('id', ids)} AND raw_request <> ''",
            tables.RAW_REQUESTS,
            chosen=ids,
        )

    def feedback(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream all feedback on these episodes and their inferences (`FEEDBACK`); None for all."""
        d = self.dialect
        steps = Wanted(d, episode_ids, 1, request.model_copy(update={"as_of": None})).ids()

        def selected(kind: str, target: str) -> str:
            return columns(
                tables.FEEDBACK,
                d.text("id"),
                d.text(target),
                f"'{kind}'",
                "metric_name" if kind in _METRICS else f"'{kind}'",
                d.feedback_value[kind],
                d.tags_map,
                d.exact if kind == "float" else "NULL",
            )

        sql = " UNION ALL ".join(
            f"SELECT {selected(kind, target)}{d.marks} FROM {d.table(table)} WHERE "
            + ("true" if episode_ids is None else f"{target} IN ({d.chosen} UNION ALL {steps})")
            + f" AND {d.is_seen(request)}"
            for kind, (table, target) in FEEDBACK.items()
        )
        return d.stream(sql, tables.FEEDBACK, chosen=episode_ids)

    def snapshots(self) -> Iterator[pa.RecordBatch]:
        """Stream the configurations of the inferences (`SNAPSHOTS`), the one used last at the end."""
        d = self.dialect
        if not d.has("config_snapshot"):
            return iter(())
        selected = columns(tables.SNAPSHOTS, d.hash("hash"), "config", d.templates)
        return d.stream(
            f"SELECT {selected} FROM {d.table('config_snapshot')} ORDER BY last_used", tables.SNAPSHOTS
        )

    def tasks(self) -> Iterator[pa.RecordBatch]:
        """Stream the episodes of workflow evaluations with their tasks (`TASKS`)."""
        if not self.dialect.has("evaluation_episode"):
            return iter(())
        return self.dialect.stream(self.dialect.tasks, tables.TASKS)

    def _of_inferences(self, selected: str, condition: str, joined: str = "") -> str:
        return " UNION ALL ".join(
            f"SELECT {selected} FROM {self.dialect.table(table)} {joined} WHERE {condition}"
            for table in INFERENCES.values()
        )


_ABANDONED = f"'{ABANDONED_TAG}'"


def _sum(column: str, condition: str) -> str:
    return f"CAST(sum({column}) FILTER (WHERE {condition}) AS BIGINT)"


def connect(url: str, access: Access = Access(), *, patience_s: int | None = None) -> Dialect:  # noqa: B008 -- frozen
    """Connect to a database of either kind; close the result by its connection.

    Args:
        url: `http://user:password@host:8123/database` or `postgresql://user:password@host:5432/database`.
        access: Limits of queries on its server.
        patience_s: Longest time of a query in seconds, where `access` sets none and the user may.

    Raises:
        RequestError: It is not the URL of a database.
        ServiceError: It cannot be reached, or refuses the user.
        MissingExtra: Its driver is not installed.
    """
    address = parse_url(url)
    if address.is_postgres:
        from trajkit.sources.tensorzero.connect.postgres import connection as postgres
        from trajkit.sources.tensorzero.connect.postgres.dialect import Postgres

        return Postgres(postgres.Connection(address, access, patience_s=patience_s))
    from trajkit.sources.tensorzero.connect.clickhouse import connection as clickhouse

    return ClickHouse(clickhouse.Connection(address, access, patience_s=patience_s))


def open_database(
    url: str,
    access: Access = Access(),  # noqa: B008 -- frozen
    *,
    patience_s: int | None = None,
) -> TensorZero:
    """Open a database to read it; see `connect`."""
    return TensorZero(connect(url, access, patience_s=patience_s))
