"""Whatever the database, SQL in DuckDB makes TensorZero's rows the store's episodes, steps and feedback.

The episodes are worked on in buckets by a hash of their id, so that memory follows the size of a bucket and
not the size of the export; a bucket becomes one part of the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import duckdb

from trajkit.environments.base import EnvironmentInfo
from trajkit.errors import QueryError
from trajkit.schema import FeedbackKind, Left, Metric, MetricLevel
from trajkit.schema.base import JsonObject
from trajkit.schema.success import Success, parse_success
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.config import ConfiguredMetric
from trajkit.store.engine import literal
from trajkit.store.layout import quoted

_LEVELED_FEEDBACK = """
    CREATE OR REPLACE TABLE scored_feedback AS
    SELECT f.*, coalesce(e.episode_id, s.episode_id) AS episode_id, s.inference_id
    FROM feedback f
    LEFT JOIN (SELECT episode_id FROM fate WHERE reason IS NULL) e ON f.target_id = e.episode_id
    LEFT JOIN chosen_step s ON f.target_id = s.inference_id
    WHERE e.episode_id IS NOT NULL OR s.inference_id IS NOT NULL;

    CREATE OR REPLACE TABLE metric_value AS
    SELECT target_id, metric_name, kind, inference_id IS NULL AS is_episode,
           arg_max(
               CASE kind WHEN 'boolean' THEN (value = 'true')::INT::DOUBLE ELSE value::DOUBLE END, feedback_id
           ) AS value
    FROM scored_feedback WHERE kind IN ('float', 'boolean') GROUP BY ALL;

    CREATE OR REPLACE TABLE demonstration_value AS
    SELECT inference_id, arg_max(value, feedback_id) AS demonstration
    FROM scored_feedback WHERE kind = 'demonstration' AND inference_id IS NOT NULL GROUP BY ALL;
"""


class Bucket(NamedTuple):
    """Queries for the rows of one bucket, in the store's columns."""

    episodes: str
    steps: str
    feedback: str


class Assembly:
    """Works on a connection that holds `chosen_step`, `fate` and `feedback`.

    Args:
        connection: Where the tables are; its memory limit is respected.
        request: What was asked for.
        environments: Known environments by id, for their rule of what an answer means.
        source: What `Episode.source` says.
        origin: What `Episode.origin` says.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        request: ExportRequest,
        *,
        environments: Mapping[str, EnvironmentInfo],
        source: str,
        origin: JsonObject,
    ) -> None:
        self._connection = connection
        self._request = request
        observation_path = _json_path(request.observation_path)
        self._variables = {
            "observation_path": literal(f"$.messages[#-1].content[0].arguments{observation_path}"),
            "message_observation_path": literal(f"$.content[*].arguments{observation_path}"),
            "action_path": literal(f"$.parsed{_json_path(request.action_path)}"),
            "source": literal(source),
            "origin": literal(json.dumps(origin)),
            "include_invalid": str(request.include_invalid),
        }
        _make_action_rules(connection, environments)
        connection.execute(_LEVELED_FEEDBACK)
        self._success = self._find_success()

    def metrics(self, configured: Mapping[str, ConfiguredMetric]) -> list[Metric]:
        """The metrics that were measured on what is kept, by level and name."""
        rows = self._connection.execute(
            "SELECT DISTINCT metric_name, kind, is_episode FROM metric_value ORDER BY ALL"
        ).fetchall()
        found: dict[tuple[str, bool], Metric] = {}
        for name, kind, is_episode in rows:
            level = MetricLevel.EPISODE if is_episode else MetricLevel.INFERENCE
            optimize = configured[name].optimize if name in configured else None
            if (name, is_episode) in found:
                raise QueryError(
                    f"metric {name!r} was logged both as a number and as a yes or no",
                    hint="narrow the export with --since or --until to one of the two",
                )
            found[name, is_episode] = Metric(
                name=name, level=level, kind=FeedbackKind(kind), optimize=optimize
            )
        return list(found.values())

    def make_bucket(
        self, connection: duckdb.DuckDBPyConnection, metrics: Sequence[Metric], files: Sequence[Path]
    ) -> Bucket:
        """Assemble one bucket.

        Args:
            connection: A cursor of the assembly's connection; what is made in it stays its own.
            metrics: The metrics that get a field.
            files: The bucket's inferences and its model calls, as Parquet.
        """
        for name, value in self._variables.items():
            connection.execute(f"SET VARIABLE {name} = {value}")
        for table, path in zip(("spooled_inference", "spooled_model_inference"), files, strict=True):
            connection.execute(
                f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT * FROM read_parquet({literal(str(path))})"
            )
        for name in ("macros", "episode_tags", "steps"):
            connection.execute(read_sql(name))
        if connection.execute("SELECT count(*) FROM conversing").fetchall() != [(0,)]:
            connection.execute(read_sql("extension"))
        connection.execute(read_sql("episodes"))
        steps = f"SELECT r.*{_metrics_join(metrics, MetricLevel.INFERENCE, 'step_row r', 'r.inference_id')}"
        episodes = (
            f"SELECT r.*, {self._outcome()} AS outcome"
            f"{_metrics_join(metrics, MetricLevel.EPISODE, 'episode_row r', 'r.episode_id')}"
        )
        return Bucket(f"({episodes})", f"({steps})", "feedback_row")

    def masked(self, connection: duckdb.DuckDBPyConnection) -> Iterator[Left]:
        """Steps of the bucket just made that are context only, by reason."""
        rows = connection.execute(
            "SELECT mask_reason, count(*) FROM step_fact WHERE mask_reason IS NOT NULL"
            " GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        for reason, n_steps in rows:
            yield Left(reason=reason, n_steps=n_steps)

    def _find_success(self) -> Success | None:
        measured = dict(
            self._connection.execute(
                "SELECT DISTINCT metric_name, kind FROM metric_value WHERE is_episode"
            ).fetchall()
        )
        if self._request.success is not None:
            success = parse_success(self._request.success)
            if success.metric not in measured:
                raise QueryError(
                    f"--success names {success.metric!r}, which was never measured"
                    " on the episodes that are kept",
                    hint=f"measured on episodes: {', '.join(sorted(measured)) or 'nothing'}",
                )
            return success
        if "success" in measured:
            return Success("success", ">=", 1)
        return Success("progression", ">=", 1) if "progression" in measured else None

    def _outcome(self) -> str:
        if self._success is None:
            return "'unknown'"
        value = (
            f"(SELECT value FROM metric_value v WHERE v.target_id = r.episode_id::UUID"
            f" AND v.metric_name = {literal(self._success.metric)})"
        )
        return (
            f"CASE WHEN {value} IS NULL THEN 'unknown'"
            f" WHEN {value}::FLOAT {self._success.operator} {self._success.value!r}::FLOAT THEN 'success'"
            f" ELSE 'failure' END"
        )


def _metrics_join(metrics: Sequence[Metric], level: MetricLevel, rows: str, key: str) -> str:
    """The rest of a SELECT from `rows` that adds the struct of the latest values of the target `key`."""
    fields = [
        f"{quoted(metric.name)} :="
        f" max(value{'::INT::BOOLEAN' if metric.kind == FeedbackKind.BOOLEAN else ''})"
        f" FILTER (metric_name = {literal(metric.name)})"
        for metric in sorted(metrics, key=lambda metric: metric.name)
        if metric.level == level
    ]
    if not fields:
        return f" FROM {rows}"
    return (
        f", v.metrics FROM {rows} LEFT JOIN (SELECT target_id, struct_pack({', '.join(fields)}) AS metrics"
        f" FROM metric_value GROUP BY target_id) v ON v.target_id = {key}::UUID"
    )


def _json_path(dotted: str) -> str:
    """`state.text` as `."state"."text"`: every name quoted, so that none is taken for an operator."""
    names = dotted.split(".")
    if "" in names or '"' in dotted:
        raise QueryError(f"the path {dotted!r} is not names joined by dots")
    return "".join(f'."{name}"' for name in names)


def _make_action_rules(
    connection: duckdb.DuckDBPyConnection, environments: Mapping[str, EnvironmentInfo]
) -> None:
    connection.execute(
        "CREATE OR REPLACE TABLE action_rule (env_id VARCHAR, actions VARCHAR[], default_action VARCHAR)"
    )
    for info in environments.values():
        if info.rule is not None:
            connection.execute(
                "INSERT INTO action_rule VALUES (?, ?, ?)",
                [info.env_id, list(info.rule.actions), info.rule.default],
            )


def read_sql(name: str) -> str:
    """The text of a file in `sql/`, named without its ending."""
    return (
        resources.files("trajkit.sources.tensorzero")
        .joinpath("sql", f"{name}.sql")
        .read_text(encoding="utf-8")
    )
