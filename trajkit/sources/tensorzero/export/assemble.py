"""Assemble TensorZero's rows into the store's episodes, steps and feedback, with SQL in DuckDB.

The SQL is the same for every database. Episodes are processed in buckets by a hash of their id, so that
memory depends on the size of a bucket and not on the size of the export. A bucket becomes one part of the
store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from trajkit.environments.base import EnvironmentInfo
from trajkit.errors import QueryError
from trajkit.schema import FeedbackKind, Metric, MetricLevel
from trajkit.schema.base import JsonObject
from trajkit.schema.success import Success, parse_success
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.export.config import ConfiguredMetric, Snapshots
from trajkit.sources.tensorzero.export.read_sql import read_sql
from trajkit.sources.tensorzero.export.spool import Group
from trajkit.sources.tensorzero.export.texts.continued import WithoutHead, continuations
from trajkit.sources.tensorzero.export.texts.late import DESCRIBED, late_texts
from trajkit.sources.tensorzero.export.texts.observed import OBSERVED, json_path
from trajkit.store.engine import literal, parsed
from trajkit.store.layout import quoted
from trajkit.store.writing.part import Late

_LEVELED_FEEDBACK = """
    CREATE OR REPLACE TABLE scored_feedback AS
    SELECT f.* REPLACE (as_json(f.value) AS value),
        coalesce(e.episode_id, s.episode_id) AS episode_id, s.inference_id
    FROM feedback f
    LEFT JOIN (SELECT episode_id FROM fate WHERE reason IS NULL) e ON f.target_id = e.episode_id
    -- there may be many steps, and feedback on few of them
    LEFT JOIN (FROM chosen_step WHERE inference_id IN (SELECT target_id FROM feedback)) s
        ON f.target_id = s.inference_id
    WHERE e.episode_id IS NOT NULL OR s.inference_id IS NOT NULL;

    CREATE OR REPLACE TABLE metric_value AS
    SELECT * FROM (
        -- what is no finite number is no value, and hides an earlier one
        SELECT target_id, metric_name, kind, inference_id IS NULL AS is_episode,
               arg_max_null(CASE kind WHEN 'boolean' THEN (value = 'true')::INT::DOUBLE
                   ELSE TRY_CAST(value AS DOUBLE) END, feedback_id) AS value
        FROM scored_feedback WHERE kind IN ('float', 'boolean') GROUP BY ALL
    )
    WHERE value IS NOT NULL;

    CREATE OR REPLACE TABLE exact_value AS
    SELECT target_id, json_group_object(metric_name, exact) AS exact_metrics
    FROM (
        SELECT target_id, metric_name, arg_max_null(exact, feedback_id) AS exact
        FROM scored_feedback WHERE kind = 'float' GROUP BY ALL
    )
    WHERE exact IS NOT NULL GROUP BY target_id;

    CREATE OR REPLACE TABLE demonstration_value AS
    SELECT inference_id, arg_max(value, feedback_id) AS demonstration
    FROM scored_feedback WHERE kind = 'demonstration' AND inference_id IS NOT NULL GROUP BY ALL;
"""

_UNUSUAL = """
    CREATE OR REPLACE TEMP TABLE unusual_answer
        (input_row BIGINT, answer VARCHAR, is_invalid BOOLEAN, action_found JSON);
    CREATE OR REPLACE TEMP TABLE given_answer (inference_id UUID, answer VARCHAR, is_invalid BOOLEAN);
    CREATE OR REPLACE TEMP TABLE step_tool (input_row BIGINT, tools JSON, is_unknown BOOLEAN, extra JSON);
"""


_NARROW_INFERENCE = [name for name in OBSERVED.names if name != "input"]
_NARROW_CALL = [
    *(name for name in tables.MODEL_INFERENCES.names if name not in ("system", "input_messages", "output")),
    *DESCRIBED.names,
]

_WITHOUT_HEAD = """(
    SELECT 1 FROM prompted WHERE prompt IS NULL
    UNION ALL SELECT 1 FROM said JOIN call ON said.call_row = call.call_row
    WHERE is_headless AND has_prompt AND said.inference_id NOT IN (SELECT inference_id FROM continued)
)"""
"""Prompts that are not messages, or that continue no other prompt: a text without its head must not be
taken for a whole."""

_READS_TEXTS = ("answering", "prompted")
"""Files of `sql/` that read the texts of the calls."""

# The files of `sql/` in order, each with the condition under which it is needed: the long expressions take
# time to plan, and most databases have only usual rows.
_PLAN = (
    ("episode_tags", None),
    ("calls", None),
    (
        "copies",
        "(SELECT inference_id FROM bucket_step GROUP BY inference_id HAVING count(*) > 1"
        " UNION ALL SELECT inference_id FROM several)",
    ),
    ("preparing", "(SELECT 1 FROM bucket_step GROUP BY episode_id, env_step HAVING count(env_step) > 1)"),
    ("answering", "several"),
    ("one_text", "spooled_inference WHERE function_type <> 'json'"),
    (
        "answers",
        "spooled_inference WHERE is_unusual(function_type, auxiliary_content)"
        " AND (function_type = 'json' OR NOT coalesce(is_one_text(output), false))",
    ),
    (
        "tools",
        "spooled_inference WHERE has_unusual_tools(tool_params, dynamic_tools, allowed_tools)"
        " OR has_tool_extra(tool_choice, parallel_tool_calls, dynamic_provider_tools)",
    ),
    ("given_answers", "demonstration_value WHERE getvariable('targets') = 'demonstration'"),
    ("steps", None),
    ("turns", "conversing"),
    ("continued", "conversing"),
    ("prompted", "(SELECT 1 FROM call WHERE NOT is_plain UNION ALL SELECT 1 FROM apart)"),
    ("extension", "apart"),
    ("step_row", None),
    ("episodes", None),
)


class Relations(NamedTuple):
    """Relations with the rows of some buckets, in the store's columns."""

    episodes: str
    steps: str
    feedback: str
    late: Late
    """Fills the texts that SQL left out."""


class Assembly:
    """Works on a connection that holds the macros, `chosen_step`, `fate` and `feedback`.

    Args:
        connection: Where the tables are; its memory limit is respected.
        request: The request.
        environments: Known environments by id, for their rules to read an answer.
        source: The value of `Episode.source`.
        origin: The value of `Episode.origin`.
        snapshots: The source of tools that no row has.
        unreadable: Why rows that are known by now cannot be read, by id.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        request: ExportRequest,
        *,
        environments: Mapping[str, EnvironmentInfo],
        source: str,
        origin: JsonObject,
        snapshots: Snapshots,
        unreadable: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self._snapshots = snapshots
        self._request = request
        self._variables = {
            "action_path": literal(f"$.parsed{json_path(request.action_path)}"),
            "source": literal(source),
            "origin": literal(json.dumps(origin)),
            "include_invalid": str(request.include_invalid),
            "targets": literal(request.targets.value),
        }
        _make_action_rules(connection, environments)
        connection.execute(_LEVELED_FEEDBACK)
        connection.execute(
            "CREATE OR REPLACE TABLE unreadable (inference_id UUID PRIMARY KEY, reason VARCHAR)"
        )
        self.take_unreadable(unreadable)
        snapshots.make_table(connection)
        self._rules = self._find_rules()

    def metrics(self, configured: Mapping[str, ConfiguredMetric]) -> list[Metric]:
        """Return the metrics measured on kept rows, by level and name. Call it before `assemble`."""
        rows = self._connection.execute(
            "SELECT DISTINCT metric_name, kind, is_episode FROM metric_value ORDER BY ALL"
        ).fetchall()
        found: dict[tuple[str, bool], Metric] = {}
        for name, kind, is_episode in rows:
            level = MetricLevel.EPISODE if is_episode else MetricLevel.INFERENCE
            optimize = configured[name].optimize if name in configured else None
            if (name, is_episode) in found:
                raise QueryError(
                    f"metric {name!r} was logged both as a number and as a boolean",
                    hint="narrow the export with --since or --until to one of the two",
                )
            found[name, is_episode] = Metric(
                name=name, level=level, kind=FeedbackKind(kind), optimize=optimize
            )
        self._make_values(list(found.values()))
        return list(found.values())

    def _make_values(self, metrics: Sequence[Metric]) -> None:
        """The latest values of every episode and step as a struct, and the outcome that follows from them."""
        of_episodes = _metrics_struct(metrics, MetricLevel.EPISODE)
        for table, struct, key, outcome in (
            ("episode_value", of_episodes, "episode_id", f", {self._outcome(of_episodes)} AS outcome"),
            ("step_value", _metrics_struct(metrics, MetricLevel.INFERENCE), "inference_id", ""),
        ):
            self._connection.execute(
                f"""
                CREATE OR REPLACE TABLE {table} AS SELECT *{outcome} FROM (
                    SELECT target_id AS {key}, {struct or "NULL"} AS metrics FROM metric_value
                    WHERE is_episode = {key == "episode_id"} GROUP BY target_id
                )
                """
            )

    def assemble(self, connection: duckdb.DuckDBPyConnection, inferences: Group, calls: Group) -> Relations:
        """Assemble some buckets.

        Args:
            connection: A cursor of the assembly's connection; its relations are its own.
            inferences: Their inferences (`observed.OBSERVED`).
            calls: Their model calls (`tables.MODEL_INFERENCES` and `late.DESCRIBED`).

        Raises:
            WithoutHead: A text that came without its head is needed as a whole.
        """
        first_slot, last_slot = inferences.slots
        slots = {"first_slot": str(first_slot), "last_slot": str(last_slot)}
        for name, value in {**self._variables, **slots}.items():
            connection.execute(f"SET VARIABLE {name} = {value}")
        connection.register("spooled_inference", inferences.table(_NARROW_INFERENCE))
        connection.register("spooled_call", calls.table(_NARROW_CALL))
        for statement in parsed(_UNUSUAL):
            connection.execute(statement)
        for name, needed_for in _PLAN:
            if needed_for is None or _any(connection, needed_for):
                if name == "tools":
                    self._snapshots.add_tools(connection)
                if name == "continued":
                    turns = connection.sql(
                        "SELECT turn, bucket, call_row, row_before FROM turn"
                    ).to_arrow_table()
                    connection.register("found_turn", continuations(calls, turns))
                if name in _READS_TEXTS:
                    # a stream can be read once
                    texts = calls.stream(["system", "input_messages", "output"])
                    connection.register("spooled_prompt", texts)
                for statement in parsed(read_sql(name)):
                    connection.execute(statement)
                if name in _READS_TEXTS:
                    connection.unregister("spooled_prompt")
        if _is_any_headless(inferences, calls) and _any(connection, _WITHOUT_HEAD):
            raise WithoutHead
        # columns that the relations do not read are freed to make room for their rows
        connection.execute("DROP VIEW call; DROP TABLE bucket_step; DROP TABLE episode_tag")
        for name in ("spooled_inference", "spooled_call"):
            connection.unregister(name)
        late = late_texts(inferences, calls)
        return Relations("episode_row", "step_row", "feedback_row", late)

    def take_unreadable(self, reasons: Mapping[str, str]) -> None:
        """Record rows that cannot be read, with the reason, by id."""
        if reasons:
            found = {"inference_id": list(reasons), "reason": list(reasons.values())}
            with self._connection.cursor() as connection:
                connection.register("found", pa.table(found))
                connection.execute(
                    "INSERT OR IGNORE INTO unreadable SELECT inference_id::UUID, reason FROM found"
                )

    def _find_rules(self) -> list[Success]:
        """Return the rules for success: the first whose metric was measured on an episode decides.

        An episode's outcome must not depend on other exported episodes: shards are merged.
        """
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
            return [success]
        return [Success(name, ">=", 1) for name in ("success", "progression") if name in measured]

    def _outcome(self, metrics: str | None) -> str:
        if not self._rules or metrics is None:
            return "'unknown'"
        cases = []
        for rule in self._rules:
            value = f"metrics.{quoted(rule.metric)}"
            holds = f"{value}::FLOAT {rule.operator} {rule.value!r}::FLOAT"
            cases.append(f"WHEN {holds} THEN 'success' WHEN {value} IS NOT NULL THEN 'failure'")
        return f"CASE {' '.join(cases)} ELSE 'unknown' END"


def _is_any_headless(inferences: Group, calls: Group) -> bool:
    return calls.has_column("head_bytes") and any(
        inferences.flags(number, "is_short").any() or calls.flags(number, "is_headless").any()
        for number in calls.numbers
    )


def _any(connection: duckdb.DuckDBPyConnection, relation: str) -> bool:
    (statement,) = parsed(f"SELECT 1 FROM {relation} LIMIT 1")
    return bool(connection.execute(statement).fetchall())


def _metrics_struct(metrics: Sequence[Metric], level: MetricLevel) -> str | None:
    """SQL for the latest values of a target as a struct; None when no metric has this level."""
    fields = [
        f"{quoted(metric.name)} := max(value) FILTER (metric_name = {literal(metric.name)})"
        f"{' <> 0' if metric.kind == FeedbackKind.BOOLEAN else ''}"
        for metric in sorted(metrics, key=lambda metric: metric.name)
        if metric.level == level
    ]
    return f"struct_pack({', '.join(fields)})" if fields else None


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
