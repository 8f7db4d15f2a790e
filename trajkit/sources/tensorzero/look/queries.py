"""The queries of `look`, in SQL that ClickHouse, Postgres and DuckDB all understand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trajkit.schema.feedback import ABANDONED_TAG
from trajkit.sources.tensorzero.connect.dialect import (
    EVAL,
    FEEDBACK,
    INFERENCES,
    IS_NAMED,
    PURPOSE,
    Dialect,
)

QUANTILES = {
    "least": 0.0,
    "p10": 0.1,
    "p25": 0.25,
    "median": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "most": 1.0,
}
"""Names of the quantiles, and the shares that do not exceed them."""

MOST_VALUES = len(QUANTILES)
"""Maximum number of bounds tried per metric."""

PATIENCE_S = 60
"""Longest time of a query of `look` on a server, unless the user sets another."""

_TAG_VALUES = 3
"""Number of listed values per tag."""


class LookTables:
    """Queries for the relations of a look.

    Args:
        dialect: Of the database.
    """

    inference: str
    """id, episode_id, function_name, variant_name, function_type, at_ms (of its id), is_named (not a function
    of TensorZero's own), is_eval (by its tags)"""
    latest: str
    """metric_name, kind, target_id, value: the latest of each metric per target, as a double; a boolean is 0
    or 1"""
    feedback: str
    """kind: one row per piece of feedback"""
    marked: str
    """target_id: targets that feedback marks as evaluation"""
    abandoned: str
    """target_id: episodes that a rollout left half-played"""
    tag: str
    """key, value: one row per tag of every inference"""

    def __init__(self, dialect: Dialect) -> None:
        d = dialect
        self.single, self.quantiles, self.bind = d.single, d.quantiles, d.bind
        self.inference = _all(
            f"SELECT id, episode_id, {d.bytewise('function_name')} AS function_name,"
            f" {d.bytewise('variant_name')} AS variant_name, '{kind}' AS function_type,"
            f" {d.at_ms('id')} AS at_ms, {IS_NAMED} AS is_named, {d.is_eval} AS is_eval"
            f" FROM {d.table(table)}"
            for kind, table in INFERENCES.items()
        )
        latest = {
            kind: d.latest(FEEDBACK[kind][0], "metric_name, target_id", d.measured[kind])
            for kind in ("float", "boolean")
        }
        self.latest = _all(
            f"SELECT {d.bytewise('metric_name')} AS metric_name, '{kind}' AS kind, target_id, latest AS value"
            f" FROM ({sql}) AS {kind}_latest"
            for kind, sql in latest.items()
        )
        self.feedback = _all(
            f"SELECT '{kind}' AS kind FROM {d.table(table)}" for kind, (table, _) in FEEDBACK.items()
        )
        self.marked = _all(
            f"SELECT {target} AS target_id FROM {d.table(table)} WHERE {d.tag_is(PURPOSE, EVAL)}"
            for table, target in FEEDBACK.values()
        )
        abandoned = d.has_tag(f"'{ABANDONED_TAG}'")
        self.abandoned = f"SELECT target_id FROM {d.table('comment_feedback')} WHERE {abandoned}"
        self.tag = _all(d.tag_pairs(d.table(table)) for table in INFERENCES.values())


def _all(queries: Iterable[str]) -> str:
    return " UNION ALL ".join(queries)


def counts_query(tables: LookTables) -> str:
    """Inferences, episodes, and the first and last time in milliseconds."""
    return (
        f"SELECT count(*), count(DISTINCT episode_id), min(at_ms), max(at_ms) FROM ({tables.inference}) AS i"
    )


def feedback_query(tables: LookTables) -> str:
    """Rows of feedback by kind."""
    return f"SELECT kind, count(*) AS n FROM ({tables.feedback}) AS f GROUP BY kind ORDER BY kind"


def functions_query(tables: LookTables, most: int) -> str:
    """Name, type, inferences, episodes, first, last, and how many there are."""
    return _ranked(
        f"""SELECT function_name, min(function_type) AS function_type, {_SUMS}
            FROM ({tables.inference}) AS i GROUP BY function_name""",
        "n_inferences DESC, function_name",
        most,
    )


def variants_query(tables: LookTables, most: int) -> str:
    """Function, variant, inferences, episodes, first, last, and how many there are."""
    return _ranked(
        f"""SELECT function_name, variant_name, {_SUMS}
            FROM ({tables.inference}) AS i GROUP BY function_name, variant_name""",
        "n_inferences DESC, function_name, variant_name",
        most,
    )


_SUMS = (
    "count(*) AS n_inferences, count(DISTINCT episode_id) AS n_episodes, min(at_ms) AS first_ms,"
    " max(at_ms) AS last_ms"
)


def levels_query(tables: LookTables, most: int) -> str:
    """Metric, kind, targets, those that are episodes, those that are inferences, and how many metrics."""
    return _ranked(
        f"""SELECT metric_name, max(kind) AS kind, count(*) AS n_targets,
                   count(*) FILTER (WHERE target_id IN
                       (SELECT episode_id FROM ({tables.inference}) AS i)) AS n_episodes,
                   count(*) FILTER (WHERE target_id IN
                       (SELECT id FROM ({tables.inference}) AS i)) AS n_inferences
            FROM ({tables.latest}) AS l GROUP BY metric_name""",
        "n_targets DESC, metric_name",
        most,
    )


def quantiles_query(tables: LookTables, n_names: int) -> str:
    """Metric, and its values at `QUANTILES`, for the metrics bound as name_0, name_1 and so on."""
    names = ", ".join(tables.bind(f"name_{number}") for number in range(n_names))
    return f"""
        SELECT metric_name, {tables.quantiles(list(QUANTILES.values()))} AS quantiles
        FROM ({tables.latest}) AS l WHERE {_FINITE} AND metric_name IN ({names}) GROUP BY metric_name
    """


_FINITE = "value - value = 0"  # neither NaN nor infinite, in every dialect


def kept_query(tables: LookTables, metrics: Sequence[tuple[bool, Sequence[float]]]) -> str:
    """Metric, the episodes that an export with it keeps, and those that it keeps with each bound.

    Args:
        tables: Of the database.
        metrics: For name_0, name_1, …: whether it is minimised, and its bounds.
    """
    kept = [
        f"count(*) FILTER (WHERE is_finite AND ({_passes(tables, metrics, number)})) AS kept_{number}"
        for number in range(MOST_VALUES)
    ]
    names = ", ".join(tables.bind(f"name_{number}") for number in range(len(metrics)))
    # an episode whose value is not a number counts as measured; a step with such a value is not chosen
    return f"""
        WITH eligible AS ({_eligible(tables)}), score AS (
            SELECT metric_name, target_id AS episode_id, value AS least, value AS most,
                   {_FINITE} AS is_finite
            FROM ({tables.latest}) AS l
            WHERE metric_name IN ({names}) AND target_id IN (SELECT episode_id FROM eligible)
            UNION ALL
            SELECT metric_name, i.episode_id AS episode_id, min(value) AS least, max(value) AS most,
                   1 = 1 AS is_finite
            FROM ({tables.latest}) AS l JOIN ({tables.inference}) AS i ON l.target_id = i.id
            WHERE metric_name IN ({names}) AND {_FINITE} AND i.is_named
                AND i.episode_id IN (SELECT episode_id FROM eligible)
            GROUP BY metric_name, i.episode_id
        )
        SELECT metric_name, count(*) AS n_measured, {", ".join(kept)} FROM score GROUP BY metric_name
    """


def _passes(tables: LookTables, metrics: Sequence[tuple[bool, Sequence[float]]], number: int) -> str:
    """Condition: a score passes the bound with that number of its metric."""
    cases = [
        f"metric_name = {tables.bind(f'name_{place}')} AND "
        + (
            f"{tables.single('least')} <= {tables.single(repr(bounds[number]))}"
            if is_minimized
            else f"{tables.single('most')} >= {tables.single(repr(bounds[number]))}"
        )
        for place, (is_minimized, bounds) in enumerate(metrics)
        if number < len(bounds)
    ]
    return " OR ".join(f"({case})" for case in cases) or "1 = 0"


def _eligible(tables: LookTables) -> str:
    """The episodes of an export without conditions: `choose` has the same rules."""
    return f"""
        SELECT episode_id FROM ({tables.inference}) AS i
        WHERE episode_id NOT IN ({tables.marked}) AND episode_id NOT IN ({tables.abandoned})
        GROUP BY episode_id
        HAVING count(*) FILTER (WHERE is_named) > 0 AND count(*) FILTER (WHERE is_eval) = 0
           AND count(*) FILTER (WHERE id IN ({tables.marked})) = 0
    """


def tags_query(tables: LookTables, most: int) -> str:
    """Key, value, its inferences, values of the key, inferences of the key, and how many keys there are.

    The most frequent values of the most frequent keys.
    """
    return f"""
        SELECT key, value, n, n_values, n_inferences, n_keys FROM (
            SELECT *, max(place) OVER () AS n_keys FROM (
                SELECT *, dense_rank() OVER (ORDER BY n_inferences DESC, key) AS place FROM (
                    SELECT *, row_number() OVER (PARTITION BY key ORDER BY n DESC, value) AS rank_in_key,
                           count(*) OVER (PARTITION BY key) AS n_values,
                           CAST(sum(n) OVER (PARTITION BY key) AS BIGINT) AS n_inferences
                    FROM (SELECT key, value, count(*) AS n FROM ({tables.tag}) AS t GROUP BY key, value) AS a
                ) AS b
            ) AS c
        ) AS d
        WHERE rank_in_key <= {_TAG_VALUES} AND place <= {most} ORDER BY place, rank_in_key
    """


def _ranked(groups: str, order: str, most: int) -> str:
    """The first groups in an order, each with how many there are in all."""
    return f"SELECT *, count(*) OVER () AS n_groups FROM ({groups}) AS g ORDER BY {order} LIMIT {most}"
