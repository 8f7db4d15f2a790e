"""Check the rules that hold in every store: the rules of the models, as SQL over the finished parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import duckdb

from trajkit.errors import DataError
from trajkit.schema import FeedbackKind, Metric, Outcome, Purpose
from trajkit.store.engine import parsed
from trajkit.store.layout import LEVELS, TABLES, columns, quoted

_KEYS = {"episodes": "episode_id", "steps": "episode_id", "feedback": "feedback_id"}

_REQUIRED = {
    "episodes": ("episode_id", "source", "purpose", "n_steps", "outcome", "tags", "content_hash"),
    "steps": ("episode_id", "step_index", "n_prompt_kept", "loss_weight"),
    "feedback": ("feedback_id", "episode_id", "kind", "metric_name", "tags", "created_at"),
}
_WORDS: tuple[tuple[str, str, type[StrEnum]], ...] = (
    ("episodes", "purpose", Purpose),
    ("episodes", "outcome", Outcome),
    ("feedback", "kind", FeedbackKind),
)


class Rule(NamedTuple):
    """A rule for a whole table."""

    broken: str
    """The error message of a violation, with `{}` for each column of the example."""
    example_sql: str
    """Selects the rows that break the rule; no row when it holds."""


class RowRule(NamedTuple):
    """A rule for each row by itself."""

    broken: str
    """The error message of a violation, with `{}` for each column of `shown`."""
    shown: str
    """Columns of an example."""
    breaks_sql: str
    """True in a row that breaks the rule."""


def check(connection: duckdb.DuckDBPyConnection, metrics: Sequence[Metric]) -> None:
    """Check the relations `episodes`, `steps` and `feedback` of a connection, each with a column `filename`.

    Raises:
        DataError: A rule is broken; the message names one of the rows that break it.
    """
    for table in TABLES:
        rules = list(_row_rules(table, metrics))
        breaks = ", ".join(f"coalesce(bool_or({rule.breaks_sql}), false)" for rule in rules)
        # one pass over the table, and a second one only to find an example
        (broken,) = _run(connection, f"SELECT {breaks} FROM {table}").fetchall()
        for rule, is_broken in zip(rules, broken, strict=True):
            if is_broken:
                example = f"SELECT {rule.shown} FROM {table} WHERE {rule.breaks_sql}"
                _raise_if_found(connection, Rule(rule.broken, example))
    _run(connection, _LISTED)
    _run(connection, _SUMMED)
    for whole_rule in _rules():
        _raise_if_found(connection, whole_rule)
    connection.execute("DROP TABLE summed_steps; DROP TABLE listed_episodes")


# One scan for all rules about the episodes, so that the files are opened once.
_LISTED = "CREATE OR REPLACE TEMP TABLE listed_episodes AS SELECT episode_id, n_steps FROM episodes"

# One pass over the steps for all rules about the steps of an episode together.
_SUMMED = """
    CREATE OR REPLACE TEMP TABLE summed_steps AS
    SELECT episode_id, count(*) AS n, count(DISTINCT step_index) AS n_indices, min(step_index) AS first,
        max(step_index) AS last, min(filename) <> max(filename) AS is_cut,
        bool_or(n_prompt_kept <> 0) AS is_kept
    FROM steps GROUP BY episode_id
"""


def _raise_if_found(connection: duckdb.DuckDBPyConnection, rule: Rule) -> None:
    found = _run(connection, f"SELECT * FROM ({rule.example_sql}) LIMIT 1").fetchone()
    if found is not None:
        raise DataError(rule.broken.format(*(repr(value) for value in found)))


def _run(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyConnection:
    (statement,) = parsed(sql)
    return connection.execute(statement)


def _row_rules(table: str, metrics: Sequence[Metric]) -> Iterator[RowRule]:
    key = _KEYS[table]
    for name in _REQUIRED[table]:
        yield RowRule(f"{table}.{name} is null (row {{}})", key, f"{name} IS NULL")
    for of_table, name, words in _WORDS:
        if of_table == table:
            known = ", ".join(f"'{word}'" for word in words)
            yield RowRule(
                f"{table}.{name} is {{}} in row {{}}; it may be {known.replace(chr(39), '')}",
                f"{name}, {key}",
                f"{name} NOT IN ({known})",
            )
    if table != "feedback":
        yield from _number_rules(table, metrics)


def _rules() -> Iterator[Rule]:
    yield Rule(
        "episode {} occurs more than once",
        "SELECT episode_id FROM listed_episodes GROUP BY episode_id HAVING count(*) > 1",
    )
    for table, summed, is_cut in (
        ("steps", "summed_steps", "SELECT episode_id FROM summed_steps WHERE is_cut"),
        (
            "feedback",
            "feedback",
            "SELECT episode_id FROM feedback GROUP BY episode_id HAVING min(filename) != max(filename)",
        ),
    ):
        yield Rule(
            f"{table} of episode {{}}, which is missing",
            f"SELECT episode_id FROM {summed} ANTI JOIN listed_episodes USING (episode_id)",
        )
        yield Rule(f"the {table} of episode {{}} are not all in one part", is_cut)
    yield Rule(
        "episode {} says n_steps {}; it has {}",
        "SELECT episode_id, e.n_steps, coalesce(s.n, 0) FROM listed_episodes e LEFT JOIN "
        "summed_steps s USING (episode_id) WHERE e.n_steps != coalesce(s.n, 0)",
    )
    yield Rule(
        "the steps of episode {} do not count from 0 without gaps: {} steps, from {} to {}",
        "SELECT episode_id, n, first, last FROM summed_steps "
        "WHERE first != 0 OR last != n - 1 OR n_indices != n",
    )
    yield _prompt_rule()


def _prompt_rule() -> Rule:
    # Only episodes that keep messages are checked: `messages` of the others are never read.
    return Rule(
        "episode {} step {}: n_prompt_kept is {} and the step before has {} messages",
        """
        SELECT episode_id, step_index, n_prompt_kept, n_available FROM (
            SELECT *, coalesce(
                lag(n_after) OVER (PARTITION BY episode_id ORDER BY step_index), 0) AS n_available
            FROM (
                -- counted here, so that no text goes into the window
                SELECT episode_id, step_index, n_prompt_kept, messages IS NULL AS is_unknown,
                    CASE WHEN messages IS NULL THEN 0 ELSE n_prompt_kept + json_array_length(messages)
                        + CAST(completion IS NOT NULL AS BIGINT) END AS n_after
                FROM steps SEMI JOIN (SELECT episode_id FROM summed_steps WHERE is_kept) USING (episode_id)))
        WHERE n_prompt_kept > n_available OR n_prompt_kept < 0 OR (is_unknown AND n_prompt_kept != 0)
        """,
    )


def _number_rules(table: str, metrics: Sequence[Metric]) -> Iterator[RowRule]:
    numbers = {c.name: c.name for c in columns(table, metrics) if c.sql_type == "DOUBLE"}
    for metric in metrics:
        if metric.level == LEVELS[table] and metric.kind == FeedbackKind.FLOAT:
            numbers[f"metrics.{metric.name}"] = f"metrics.{quoted(metric.name)}"
    for name, sql in numbers.items():
        shown = f"{table}.{name}".replace("{", "{{").replace("}", "}}")
        yield RowRule(
            f"{shown} is {{}} in episode {{}}; use null for unknown",
            f"{sql}, episode_id",
            f"NOT isfinite({sql})",
        )
    for name in [c.name for c in TABLES[table] if c.sql_type == "DOUBLE[]"]:
        yield RowRule(
            f"{table}.{name} has a number that is not finite in episode {{}}",
            "episode_id",
            f"len(list_filter({name}, lambda x: NOT isfinite(x))) > 0",
        )
