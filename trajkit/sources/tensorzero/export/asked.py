"""Resolve the conditions and orders of an export request against a TensorZero database.

Most names in a condition need only ids, metrics and tags, which are narrow. Properties of a model call, such
as tokens, are known only once the steps are read and each answer is matched to its call. For such a request
(`Asked.is_late`) the texts of all candidate episodes are pulled first, and their steps are assembled again
when the chosen episodes are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import duckdb
import pyarrow as pa

from trajkit.errors import QueryError
from trajkit.schema import FeedbackKind, MetricLevel
from trajkit.sources.choose import PURPOSE, find_level
from trajkit.sources.question import NO_QUESTION, read_question
from trajkit.sources.request import ExportRequest, MetricCondition
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.sources.tensorzero.export.config import ConfiguredMetric
from trajkit.store.conditions.nameable import Names, column_name
from trajkit.store.conditions.names import LISTS, STEP, joined
from trajkit.store.engine import literal
from trajkit.store.layout import TABLES, quoted

_TAG_COLUMNS = {"env_id": "trajkit.env", "task": "trajkit.task", "seed": "trajkit.seed"}
_STARTED = "uuid_extract_timestamp(inference_id)"
_LISTED = {
    names: f"list_sort(list_distinct(list({name}_name)))"
    for name, names in (("function", "function_names"), ("variant", "variant_names"))
}
_OF_EPISODE = {
    "episode_id": "CAST(episode_id AS VARCHAR)",
    "n_steps": "count(*)",
    "started_at": f"min({_STARTED})",
    "purpose": PURPOSE,
    **_LISTED,
    **{name: joined(_LISTED[names]) for name, names in LISTS.items()},
}
_OF_STEP = {
    "step.inference_id": "CAST(inference_id AS VARCHAR)",
    "step.step_index": "row_number() OVER (PARTITION BY episode_id ORDER BY inference_id) - 1",
    "step.function_name": "function_name",
    "step.variant_name": "variant_name",
    "step.started_at": _STARTED,
}
_LATE_OF_EPISODE = ("ended_at", "outcome", "n_input_tokens", "n_output_tokens", "cost_usd")
_LATE_OF_STEP = tuple(
    f"{STEP}{name}"
    for name in (
        *("model_name", "observation", "action", "action_executed", "action_valid", "demonstration"),
        *("n_input_tokens", "n_output_tokens", "cost_usd", "latency_s", "finish_reason", "cached"),
    )
)
_METRIC, _TAG = "metrics.", "tags."
_STEP_TAG = "trajkit.step"


class Asked:
    """The conditions and orders of a request, and how to compute them.

    Args:
        request: The request.
        database: The database to query.

    Raises:
        QueryError: An expression is not a condition, or uses an unknown name.
    """

    def __init__(self, request: ExportRequest, database: TensorZero) -> None:
        self._request = request
        self._database = database
        self._metrics: Mapping[str, ConfiguredMetric] = {}
        self._tag_columns = dict(_TAG_COLUMNS)
        self._late_of_episode: tuple[str, ...] = _LATE_OF_EPISODE
        if request.include_eval:  # workflow evaluations name the tasks of their episodes elsewhere
            del self._tag_columns["task"]
            self._late_of_episode = (*_LATE_OF_EPISODE, "task")
        self.question = NO_QUESTION
        if request.where is not None or request.limit is not None:
            self._metrics = database.metrics()
            self.question = read_question(request, self._names())

    @property
    def is_late(self) -> bool:
        """Whether the steps must be read before it is known which episodes stay."""
        return bool(self._late(self._late_of_episode) or self._late(_LATE_OF_STEP))

    @property
    def wider_request(self) -> ExportRequest:
        """The request plus the metrics that its conditions name, so that the database streams those too."""
        names = [name for name in self._metrics_named() if all(m.name != name for m in self._request.metrics)]
        more = tuple(MetricCondition(name=name) for name in names)
        return self._request.model_copy(update={"metrics": self._request.metrics + more})

    def tag_values(self) -> Iterator[pa.RecordBatch]:
        """Stream the tags that the conditions name (`tables.TAG_VALUES`)."""
        keys = sorted(set(self._tags().values()))
        return self._database.tag_values(self._request, keys) if keys else iter(())

    def check_tags(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Raise if no row of the table `tag_value` has a tag that the conditions name."""
        found = {key for (key,) in connection.execute("SELECT DISTINCT key FROM tag_value").fetchall()}
        for name, key in sorted(self._tags().items()):
            if key not in found and name not in self._tag_columns:
                raise QueryError(
                    f"no inference that the export reads has the tag {key!r}",
                    hint="`trajkit info` on the database lists the tags",
                )
            if key == _STEP_TAG and not name.startswith(STEP):
                raise QueryError(
                    f"{_STEP_TAG} is a tag of single steps", hint=f"write {STEP}{_TAG}{_STEP_TAG}"
                )

    def find_out(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Parse the conditions again, now that the level of each metric is known, and make their tables.

        Args:
            connection: Has the tables that choosing reads, `tag_value` besides, and when the question is late
                `late_episode` and `late_step`.

        Raises:
            QueryError: A metric was logged about episodes and about steps.
        """
        if self.question == NO_QUESTION:
            return
        of_steps = {
            name
            for name in self._metrics_named()
            if find_level(connection, name, self._metrics[name]) == MetricLevel.INFERENCE
        }
        self.question = read_question(self._request, self._names(of_steps))
        episodes = self._columns(_OF_EPISODE, self.question.episode_names)
        connection.execute(
            f"""
            CREATE OR REPLACE TABLE asked_episode AS SELECT base.*{episodes.joined} FROM (
                SELECT episode_id AS of_episode{episodes.own} FROM step_index_of
                GROUP BY step_index_of.episode_id
            ) AS base {episodes.joins("of_episode")}
            """
        )
        if self.question.is_about_steps:
            steps = self._columns(_OF_STEP, self.question.step_names)
            connection.execute(
                f"""
                CREATE OR REPLACE TABLE asked_step AS
                SELECT base.*, e.* EXCLUDE (of_episode){steps.joined} FROM (
                    SELECT inference_id AS of_step, episode_id AS of_episode{steps.own} FROM step_index_of
                ) AS base JOIN asked_episode AS e USING (of_episode) {steps.joins("of_step")}
                """
            )

    def note(self, is_first: bool, connection: duckdb.DuckDBPyConnection, relations: object) -> None:
        """Keep the values of new steps that the conditions need, in `late_episode` and `late_step`.

        Args:
            is_first: Whether the tables are to be made.
            connection: Has the relations `episode_row` and `step_row`.
            relations: The other results of an assembly.
        """
        for table, key, names, source in (
            # steps first: only they may fail on a text, and a failure is retried
            ("late_step", "inference_id", self._late(_LATE_OF_STEP), "step_row"),
            ("late_episode", "episode_id", self._late(self._late_of_episode), "episode_row"),
        ):
            values = "".join(f", {_typed(name)} AS {quoted(column_name(name))}" for name in names)
            rows = f"SELECT CAST({key} AS UUID) AS id{values} FROM {source}"
            connection.execute(
                f"CREATE OR REPLACE TABLE {table} AS {rows}" if is_first else f"INSERT INTO {table} {rows}"
            )

    def _late(self, known: Iterable[str]) -> list[str]:
        return [name for name in known if name in self.question.names]

    def _names(self, of_steps: Collection[str] = ()) -> Names:
        """The names that a condition may use, given which metrics are about steps."""
        metrics = {name: f"{STEP if name in of_steps else ''}{_METRIC}{name}" for name in self._metrics}
        own = [*_OF_EPISODE, *self._tag_columns, *self._late_of_episode]
        step = {name.removeprefix(STEP): name for name in (*_OF_STEP, *_LATE_OF_STEP)}
        return Names(
            {**metrics, **{name: name for name in own}},
            prefixes={"metrics": metrics, "step": step},
            open_prefixes=("tags", "step.tags"),
            singles=[
                metrics[name] for name, metric in self._metrics.items() if metric.kind == FeedbackKind.FLOAT
            ],
            where="this database",
        )

    def _metrics_named(self) -> list[str]:
        named = {name.removeprefix(STEP) for name in self.question.names}
        return [name for name in self._metrics if f"{_METRIC}{name}" in named]

    def _tags(self) -> dict[str, str]:
        """The columns that hold a tag, each with the tag's key."""
        return {
            name: self._tag_columns.get(name) or name.removeprefix(STEP).removeprefix(_TAG)
            for name in self.question.names
            if name in self._tag_columns or name.removeprefix(STEP).startswith(_TAG)
        }

    def _columns(self, simple: Mapping[str, str], names: Iterable[str]) -> _Columns:
        """Where the values of some columns come from: the rows themselves or other tables."""
        own = [f", {simple[name]} AS {quoted(column_name(name))}" for name in names if name in simple]
        joined_names = [name for name in names if name not in simple]
        columns = [
            f", j{number}.value AS {quoted(column_name(name))}" for number, name in enumerate(joined_names)
        ]
        relations = [self._relation(name) for name in joined_names]
        return _Columns("".join(own), "".join(columns), relations)

    def _relation(self, name: str) -> str:
        """Rows of an id and its value."""
        tags = self._tags()
        if name in tags:
            return _tag_relation(name, tags[name])
        if name.removeprefix(STEP).startswith(_METRIC):
            metric = name.removeprefix(STEP).removeprefix(_METRIC)
            is_float = self._metrics[metric].kind == FeedbackKind.FLOAT
            value = "CASE WHEN isfinite(value) THEN value::FLOAT END" if is_float else "value <> 0"
            of_metric = f"FROM measured WHERE metric_name = {literal(metric)}"
            return f"SELECT target_id AS id, {value} AS value {of_metric}"
        table = "late_step" if name.startswith(STEP) else "late_episode"
        return f"SELECT id, {quoted(column_name(name))} AS value FROM {table}"


class _Columns(NamedTuple):
    """Parts of a SELECT."""

    own: str
    """Columns of the rows themselves, each after a comma."""
    joined: str
    """Columns of the joined tables, each after a comma."""
    relations: list[str]
    """The joined relations, in the order of `joined`."""

    def joins(self, key: str) -> str:
        """The joins on this column of the rows."""
        return " ".join(
            f"LEFT JOIN ({relation}) AS j{number} ON j{number}.id = base.{key}"
            for number, relation in enumerate(self.relations)
        )


def _tag_relation(name: str, key: str) -> str:
    if name.startswith(STEP):
        return f"SELECT inference_id AS id, value FROM tag_value WHERE key = {literal(key)}"
    # as in the store: the first step with the tag decides for the episode
    value = "arg_min(value, inference_id)"
    if name == "seed":
        value = f"TRY_CAST({value} AS BIGINT)"
    return (
        f"SELECT episode_id AS id, {value} AS value FROM tag_value JOIN step_index_of USING (inference_id)"
        f" WHERE key = {literal(key)} GROUP BY episode_id"
    )


def _typed(name: str) -> str:
    """A column of `episode_row` or `step_row` in the type that the store gives it."""
    table = "steps" if name.startswith(STEP) else "episodes"
    plain = name.removeprefix(STEP)
    (sql_type,) = (column.sql_type for column in TABLES[table] if column.name == plain)
    return f"CAST({quoted(plain)} AS {sql_type})"
