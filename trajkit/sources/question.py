"""Parse the expressions of a request, `--where` and `--order-by`, bind them to tables, and evaluate them.

Two tables hold the named values, a column each: `asked_episode`, one row per episode with its id in
`of_episode`, and `asked_step`, one row per step with its id in `of_step`. A column of steps has a name that
begins with `step.`; `asked_step` has those of its episode too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import duckdb

from trajkit.errors import QueryError
from trajkit.sources.request import ExportRequest
from trajkit.store.conditions.expression import Expression, Order, parse, parse_order, require_boolean
from trajkit.store.conditions.nameable import Names, column_name
from trajkit.store.conditions.names import STEP
from trajkit.store.engine import first_line
from trajkit.store.layout import quoted

_METRIC = "metrics."
_OLDEST_FIRST = "started_at"
# Errors of a user's expression, unlike those of a full disk or memory.
_FAULTS = (
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
    duckdb.BinderException,
)


class Question(NamedTuple):
    """The parsed expressions."""

    where: Expression | None = None
    """The condition."""
    order: tuple[Order, ...] = ()
    """The order of the episodes; empty when all are exported."""

    @property
    def names(self) -> frozenset[str]:
        """The columns that the expressions need."""
        expressions = [*([self.where] if self.where else []), *(order.expression for order in self.order)]
        return frozenset(name for expression in expressions for name in expression.names)

    @property
    def is_about_steps(self) -> bool:
        """Whether the condition holds for single steps, not for whole episodes."""
        return self.where is not None and any(name.startswith(STEP) for name in self.where.names)

    @property
    def step_names(self) -> list[str]:
        """The columns of steps among `names`, sorted."""
        return sorted(name for name in self.names if name.startswith(STEP))

    @property
    def episode_names(self) -> list[str]:
        """The columns of episodes among `names`, sorted."""
        return sorted(name for name in self.names if not name.startswith(STEP))


NO_QUESTION = Question()
"""The question of a request without expressions."""


def read_question(request: ExportRequest, names: Names) -> Question:
    """Parse the expressions of a request.

    Args:
        request: The request.
        names: The names of the source.

    Raises:
        QueryError: It is not a condition or an order, or has an unknown name.
    """
    where = None if request.where is None else parse(request.where, names)
    order: tuple[Order, ...] = ()
    if request.limit is not None:
        order = parse_order(request.order_by or _OLDEST_FIRST, names)
    for each in order:
        if of_steps := [name for name in each.expression.names if name.startswith(STEP)]:
            raise QueryError(
                f"--order-by {each.expression.text!r} is about single steps: {of_steps[0]}",
                hint="it sorts episodes: use a value of the episode, such as started_at or a metric",
            )
    return Question(where, order)


def answer(connection: duckdb.DuckDBPyConnection, question: Question) -> None:
    """Make the table `asked_true` of the ids, of episodes or of steps, for which the condition is true.

    Raises:
        QueryError: The condition does not give a boolean, or fails on a value.
    """
    if question.where is None:
        return
    table, key = ("asked_step", "of_step") if question.is_about_steps else ("asked_episode", "of_episode")
    require_boolean(question.where, connection, table)
    with _explaining(question.where.text):
        connection.execute(
            f"CREATE OR REPLACE TABLE asked_true AS"
            f" SELECT {key} AS id FROM {table} WHERE {question.where.sql}"
        )


def cut(connection: duckdb.DuckDBPyConnection, request: ExportRequest, question: Question) -> None:
    """Mark episodes beyond the limit as left out in the table `fate`; without an order, none yet.

    Raises:
        QueryError: The sort expression fails on a value.
    """
    if request.limit is None or not question.order:
        return
    words = f" by {request.order_by}" if request.order_by else ""
    order = ", ".join([*(each.sql for each in question.order), "of_episode"])
    with _explaining(request.order_by or _OLDEST_FIRST):
        connection.execute(
            f"""
            CREATE OR REPLACE TABLE fate AS
            SELECT fate.* REPLACE (CASE WHEN place > {request.limit} THEN ? ELSE reason END AS reason)
            FROM fate LEFT JOIN (
                SELECT of_episode, row_number() OVER (ORDER BY {order}) AS place FROM asked_episode
                WHERE of_episode IN (SELECT episode_id FROM fate WHERE reason IS NULL)
            ) ON of_episode = episode_id
            """,
            [f"after the first {request.limit:,}{words}"],
        )


def metric_ranges(connection: duckdb.DuckDBPyConnection, question: Question) -> list[str]:
    """Return the value ranges of the metrics in the condition, as far as its tables exist."""
    if question.where is None:
        return []
    found = []
    for name in question.where.names:
        table, level = ("asked_step", "inference") if name.startswith(STEP) else ("asked_episode", "episode")
        metric = name.removeprefix(STEP)
        if metric.startswith(_METRIC):
            value = f"CAST({quoted(column_name(name))} AS DOUBLE)"
            ((n, low, high),) = connection.execute(
                f"SELECT count({value}), min({value}), max({value}) FROM {table}"
            ).fetchall()
            found.append(range_of(metric.removeprefix(_METRIC), level, n, low, high))
    return found


def range_of(metric: str, level: str, n: int, low: float, high: float) -> str:
    """Describe the values of a metric: the number of episodes or inferences, the smallest and the largest."""
    if not n:
        return f"{metric} was never measured"
    return f"{metric} of {n} {level}{'' if n == 1 else 's'} ranges from {low:g} to {high:g}"


@contextmanager
def _explaining(text: str) -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        raise QueryError(f"{text!r} cannot be computed: {first_line(error)}") from error
