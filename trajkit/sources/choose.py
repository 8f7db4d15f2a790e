"""Decide which episodes and steps an export keeps, and account for the rest. Pure SQL over four tables.

`step_index_of(inference_id, episode_id, function_name, variant_name, is_eval, is_train, tag_match, slot)` has
one row per inference, `measured(metric_name, target_id, value)` the latest value per target,
`eval_target(target_id)` what feedback marks as evaluation, `abandoned(target_id, reason)` the episodes that a
rollout left half-played, `demonstrated(target_id)` the steps that have a demonstration (if
only those are requested); `--where` and `--order-by` have tables of their own
(`trajkit.sources.question`). The results are `chosen_step` (every step of the kept episodes, with the reason
if it is only context, else null) and `fate` (every episode, with the reason if it is left out, else null).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import duckdb

from trajkit.errors import NothingMatched, QueryError
from trajkit.schema import FeedbackKind, Left, Metric, MetricLevel
from trajkit.sources.question import NO_QUESTION, Question, answer, cut, metric_ranges, range_of
from trajkit.sources.request import ExportRequest, MetricCondition, Targets
from trajkit.store.engine import literal

if TYPE_CHECKING:
    from trajkit.sources.tensorzero.export.config import ConfiguredMetric

OWN_FUNCTIONS = "NOT starts_with(function_name, 'tensorzero::')"
"""Leaves out TensorZero's own functions (judges, defaults): they are never trained on."""

NOT_SELECTED = "not selected"
"""Why a step is context only: the request chose other functions, variants or inference scores."""

OTHER_FUNCTION = "another function"
"""Why a step is context only: it is not of a function to train."""

UNCHANGED = "nothing new since the store"
"""Why an episode is left out: an earlier store has it unchanged (`unchanged`)."""

NOT_LAST = "not the last step"
"""Why a step is context only: the request takes only the last one."""

NOT_DEMONSTRATED = "no demonstration"
"""Why a step is context only, or an episode is left out: it has no demonstration."""

PURPOSE = """
    CASE WHEN bool_or(is_eval) OR bool_or(inference_id IN (FROM eval_target))
            OR any_value(episode_id) IN (FROM eval_target) THEN 'eval'
        WHEN bool_or(is_train) THEN 'train' ELSE 'unknown' END
"""
"""The purpose of an episode, from its steps (a group of `step_index_of`)."""


KnownMetric: TypeAlias = "Metric | ConfiguredMetric"
"""The facts of a source about a metric."""


class LeveledCondition(NamedTuple):
    """A condition with the facts about its metric."""

    condition: MetricCondition
    level: MetricLevel


def settle(condition: MetricCondition, metric: KnownMetric) -> MetricCondition:
    """Return the condition for this metric: a boolean one without a bound requires true.

    Raises:
        QueryError: The boolean metric is minimised, so that true is the bad value.
    """
    if metric.kind != FeedbackKind.BOOLEAN or condition.min is not None or condition.max is not None:
        return condition
    if metric.optimize == "min":
        raise QueryError(
            f"metric {condition.name!r} is minimised: say which side to keep",
            hint=f"--metric {condition.name} --max 0 keeps what it is false for",
        )
    return MetricCondition(name=condition.name, min=1)


def find_levels(
    connection: duckdb.DuckDBPyConnection, request: ExportRequest, known: Mapping[str, KnownMetric]
) -> list[LeveledCondition]:
    """Return the level of each metric: the data decide, else the configuration.

    Raises:
        QueryError: The metric was logged about both, so that a condition on it could mean either.
    """
    found = [(settle(each, known[each.name]), known[each.name]) for each in request.metrics]
    return [LeveledCondition(each, find_level(connection, each.name, metric)) for each, metric in found]


def find_level(connection: duckdb.DuckDBPyConnection, name: str, metric: KnownMetric) -> MetricLevel:
    """Return the level of a metric: the data decide, else the configuration.

    Raises:
        QueryError: It was logged about both.
    """
    ((n_episode, n_inference),) = connection.execute(
        """
        WITH target AS (SELECT target_id FROM measured WHERE metric_name = ?)
        SELECT (SELECT count(*) FROM target WHERE target_id IN (SELECT episode_id FROM step_index_of)),
               (SELECT count(*) FROM target WHERE target_id IN (SELECT inference_id FROM step_index_of))
        """,
        [name],
    ).fetchall()
    if n_episode and n_inference:
        raise QueryError(
            f"metric {name!r} was logged on {n_episode} episodes and on {n_inference} inferences",
            hint="a condition on it could mean either;"
            " narrow the export with --since or --until to one of the two",
        )
    if not n_episode and not n_inference and metric.level:
        return MetricLevel(metric.level)
    return MetricLevel.INFERENCE if n_inference else MetricLevel.EPISODE


def choose(
    connection: duckdb.DuckDBPyConnection,
    request: ExportRequest,
    conditions: Sequence[LeveledCondition],
    question: Question = NO_QUESTION,
) -> None:
    """Make the table `fate`, and prepare `list_steps`.

    Args:
        connection: Has the tables.
        request: Which episodes.
        conditions: The metrics of the request, with their levels.
        question: Its `--where` and `--order-by`; their tables must exist.

    Raises:
        QueryError: An expression of the request fails on a value.
    """
    answer(connection, question)
    of_steps = [item.condition for item in conditions if item.level == MetricLevel.INFERENCE]
    of_episodes = [item.condition for item in conditions if item.level == MetricLevel.EPISODE]
    connection.execute(f"CREATE OR REPLACE VIEW labelled_step AS {_labelled(request, of_steps, question)}")
    connection.execute(
        f"""
        CREATE OR REPLACE TABLE fate AS
        WITH episode AS (
            SELECT episode_id, count(*) AS n_steps, bit_or(tag_match) AS tag_match, {PURPOSE} AS purpose,
                   {_is_demonstrated(request)} AS has_demonstrated,
                   bool_or(is_named) AS has_named, bool_or({_is_trained(request)}) AS has_trained,
                   bool_or(unselected IS NULL) AS has_selected
            FROM labelled_step GROUP BY episode_id
        )
        SELECT episode_id, n_steps, purpose, {_reason(request, of_episodes, question)} AS reason
        FROM episode LEFT JOIN abandoned ON abandoned.target_id = episode.episode_id
        """
    )
    cut(connection, request, question)


def list_steps(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table `chosen_step` from the decision of `choose`."""
    connection.execute(
        """
        CREATE OR REPLACE TABLE chosen_step AS
        SELECT inference_id, episode_id, function_name, variant_name, unselected, slot,
               row_number() OVER (PARTITION BY episode_id ORDER BY inference_id) - 1 AS step_index
        FROM labelled_step SEMI JOIN (SELECT episode_id FROM fate WHERE reason IS NULL) USING (episode_id)
        ORDER BY slot  -- in the order in which they are worked on: a group reads its own rows only
        """
    )
    connection.execute("DROP VIEW labelled_step")


def _is_demonstrated(request: ExportRequest) -> str:
    """Whether a group of steps has one with a demonstration; read only if it is requested."""
    is_asked = request.targets == Targets.DEMONSTRATION
    return "bool_or(inference_id IN (FROM demonstrated))" if is_asked else "true"


def _is_trained(request: ExportRequest) -> str:
    if not request.train_functions:
        return "true"
    return f"(function_name IN ({', '.join(map(literal, request.train_functions))}))"


def _labelled(request: ExportRequest, conditions: Sequence[MetricCondition], question: Question) -> str:
    """Every step, with whether its names were requested and why it is not trained on (null if it is)."""
    named = [OWN_FUNCTIONS]
    for column, names in (("function_name", request.functions), ("variant_name", request.variants)):
        if names:
            named.append(f"{column} IN ({', '.join(map(literal, names))})")
    is_named = " AND ".join(named)
    passed = [
        f"inference_id IN (SELECT target_id FROM measured WHERE metric_name = {literal(condition.name)}"
        f" AND {_passes(condition)})"
        for condition in conditions
    ]
    if question.is_about_steps:
        passed.append("inference_id IN (SELECT id FROM asked_true)")
    cases = [f"WHEN NOT ({' AND '.join([is_named, *passed])}) THEN '{NOT_SELECTED}'"]
    cases.append(f"WHEN NOT {_is_trained(request)} THEN '{OTHER_FUNCTION}'")
    if request.targets == Targets.DEMONSTRATION:
        cases.append(f"WHEN inference_id NOT IN (FROM demonstrated) THEN '{NOT_DEMONSTRATED}'")
    labelled = (
        f"SELECT *, {is_named} AS is_named, CASE {' '.join(cases)} END AS unselected FROM step_index_of"
    )
    if not request.last_inference_only:
        return labelled
    last = "max(inference_id) FILTER (WHERE unselected IS NULL) OVER (PARTITION BY episode_id)"
    return (
        f"SELECT * REPLACE (CASE WHEN unselected IS NULL AND inference_id <> {last} THEN '{NOT_LAST}'"
        f" ELSE unselected END AS unselected) FROM ({labelled})"
    )


def _passes(condition: MetricCondition) -> str:
    """Compare bounds as 32-bit floats, as ClickHouse keeps the values, so that 0.7 passes 0.7."""
    bounds = ["isfinite(value)"]
    if condition.min is not None:
        bounds.append(f"value::FLOAT >= {condition.min!r}::FLOAT")
    if condition.max is not None:
        bounds.append(f"value::FLOAT <= {condition.max!r}::FLOAT")
    return " AND ".join(bounds)


def _reason(request: ExportRequest, conditions: Sequence[MetricCondition], question: Question) -> str:
    """The first reason that applies, in a fixed order, so that the reasons add up."""
    cases = ["WHEN NOT has_named THEN 'no step of the requested functions and variants'"]
    if request.after is not None:
        cases.append(f"WHEN episode_id IN (SELECT episode_id FROM unchanged) THEN '{UNCHANGED}'")
    if not request.include_abandoned:
        cases.append("WHEN abandoned.reason IS NOT NULL THEN 'abandoned: ' || abandoned.reason")
    if not request.include_eval:
        cases.append("WHEN purpose = 'eval' THEN 'evaluation episode'")
    if request.tags:
        all_bits = (1 << len(request.tags)) - 1
        words = " and ".join(f"{key}={value}" for key, value in request.tags.items())
        cases.append(f"WHEN tag_match <> {all_bits} THEN {literal('no tag ' + words)}")
    for condition in conditions:
        of_metric = f"FROM measured WHERE metric_name = {literal(condition.name)}"
        words = literal(f"{condition.name} not measured")
        cases.append(f"WHEN episode_id NOT IN (SELECT target_id {of_metric}) THEN {words}")
        if condition.min is not None or condition.max is not None:
            words = literal(f"not {condition.words}")
            cases.append(
                f"WHEN episode_id NOT IN (SELECT target_id {of_metric} AND {_passes(condition)}) THEN {words}"
            )
    if question.where is not None and not question.is_about_steps:
        words = literal(f"not ({question.where.text})")
        cases.append(f"WHEN episode_id NOT IN (SELECT id FROM asked_true) THEN {words}")
    if question.where is not None and question.is_about_steps:
        words = literal(f"no step where {question.where.text}")
        some = "SELECT of_episode FROM asked_step WHERE of_step IN (SELECT id FROM asked_true)"
        cases.append(f"WHEN episode_id NOT IN ({some}) THEN {words}")
    cases.append("WHEN NOT has_trained THEN 'no step of the functions to train'")
    if request.targets == Targets.DEMONSTRATION:
        cases.append(f"WHEN NOT has_demonstrated THEN '{NOT_DEMONSTRATED}'")
    cases.append("WHEN NOT has_selected THEN 'no step passes the conditions on steps'")
    return f"CASE {' '.join(cases)} END"


def left_by_reason(connection: duckdb.DuckDBPyConnection) -> list[Left]:
    """The reasons with their counts, largest first."""
    rows = connection.execute(
        """
        SELECT reason, count(*), sum(n_steps)::BIGINT FROM fate WHERE reason IS NOT NULL
        GROUP BY reason ORDER BY count(*) DESC, reason
        """
    ).fetchall()
    return [
        Left(reason=reason, n_episodes=n_episodes, n_steps=n_steps) for reason, n_episodes, n_steps in rows
    ]


def kept_counts(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Count the kept episodes and steps."""
    ((n_episodes, n_steps),) = connection.execute(
        "SELECT count(*), coalesce(sum(n_steps), 0)::BIGINT FROM fate WHERE reason IS NULL"
    ).fetchall()
    return n_episodes, n_steps


def nothing_matched(
    connection: duckdb.DuckDBPyConnection,
    conditions: Sequence[LeveledCondition],
    left: Sequence[Left],
    question: Question = NO_QUESTION,
) -> NothingMatched:
    """The error for an empty result: the request, and the values that exist."""
    sql = "SELECT count(*), min(value), max(value) FROM measured WHERE metric_name = ? AND isfinite(value)"
    ranges = []
    for item in conditions:
        ((n, low, high),) = connection.execute(sql, [item.condition.name]).fetchall()
        ranges.append(range_of(item.condition.name, item.level, n, low, high))
    ranges += metric_ranges(connection, question)
    reasons = "; ".join(f"{entry.reason}: {entry.n_episodes}" for entry in left)
    return NothingMatched(
        f"no episode is left ({reasons or 'the source has no episodes'})", hint="; ".join(ranges) or None
    )
