"""Group attempts at the same task, and define the names that a condition on episodes and groups may use.

The score of an episode is the requested metric, else its metric `episode_return` if the store has one, else
`total_reward`. `trajkit.curation.keys` defines a group: environment, task and seed, or any columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import duckdb

from trajkit.errors import QueryError
from trajkit.store.conditions.nameable import Names, nearest
from trajkit.store.conditions.names import episode_metrics
from trajkit.store.conditions.names import names_of as store_names
from trajkit.store.layout import quoted
from trajkit.store.reader import Store

STATISTICS = ("n", "n_success", "avg", "best", "worst", "rank")
"""Statistics of an episode's group, and its rank, that a condition may use besides `pass@k`."""
_PASS = re.compile(r"pass@([0-9]+)")
_MOST_ATTEMPTS = 1_000
_RATED = "('success', 'failure', 'truncated')"


class Score(NamedTuple):
    """The quality of episodes."""

    name: str
    """The metric, or `total_reward`."""
    sql: str
    """SQL of a double over `episodes`, null if it was not measured."""
    is_less_better: bool = False
    """Whether the store says that smaller values of the metric are better."""

    @property
    def best_first(self) -> str:
        """SQL that sorts by the column `score`, the best first and the unmeasured last."""
        return f"score {'ASC' if self.is_less_better else 'DESC'} NULLS LAST"


def score_of(store: Store, connection: duckdb.DuckDBPyConnection, name: str | None = None) -> Score:
    """Return the score that groups, weights and pairs use.

    Args:
        store: The store.
        connection: Has its view `episodes`.
        name: A metric of episodes, or `total_reward`; None for `episode_return` if the store has that metric,
            else `total_reward`.

    Raises:
        QueryError: The metric does not exist, or the store has no score; the hint lists its metrics.
    """
    metrics = {metric.name: metric for metric in episode_metrics(store)}
    if name is None and "episode_return" in metrics:
        name = "episode_return"
    if name in metrics:
        sql = f"CAST(metrics.{quoted(name)} AS DOUBLE)"
        return Score(name, sql, is_less_better=metrics[name].optimize == "min")
    known = [*metrics, "total_reward"]
    if name not in (None, "total_reward"):
        raise QueryError(f"no metric {name!r} of episodes in {store.path}", hint=nearest(name or "", known))
    (measured,) = connection.execute("SELECT count(total_reward) FROM episodes").fetchall()
    if not measured[0]:
        there = (
            f"metrics: {', '.join(metrics)}" if metrics else "it has no metrics: `trajkit score` makes one"
        )
        raise QueryError(
            f"{store.path} has neither a metric episode_return nor a total_reward to compare episodes by",
            hint=f"name a metric with --score; {there}",
        )
    return Score("total_reward", "total_reward")


def names_of(store: Store, connection: duckdb.DuckDBPyConnection) -> tuple[Names, dict[str, str]]:
    """Return the names that a condition on episodes may use, and SQL of each column that is not about groups.

    A bare name is a column, else a statistic of the group, else a metric; `metrics.NAME` and `tags.KEY` are
    never ambiguous. Any `pass@k` may be named, too.

    Args:
        store: The store.
        connection: Has its view `episodes`; the keys of the tags are read from it.
    """
    return store_names(store, connection, more={name: name for name in STATISTICS}, patterns=(_PASS,))


def pass_at_k(k: int, *, n: str, c: str) -> str:
    """Return SQL of an unbiased estimate of the chance that at least one of k attempts succeeds.

    It is 1 - C(n - c, k) / C(n, k), as a product: Chen et al. 2021, "Evaluating Large Language Models Trained
    on Code", arXiv:2107.03374, equation 1. Null when there are fewer than k attempts.

    Args:
        k: Number of attempts.
        n: SQL of the number of recorded attempts.
        c: SQL of the number that succeeded.
    """
    factors = f"list_transform(range({k}), lambda j: greatest(({n} - {c} - j) / ({n} - j), 0.0))"
    return f"CASE WHEN {n} >= {k} THEN 1.0 - list_product({factors}) END"


def statistics_sql(columns: Iterable[str], score: Score | None, pool: str) -> str:
    """Return a SELECT of `episode_id` and the requested columns about groups.

    `n` counts the episodes of the group, `n_success` those that succeeded (null when no outcome is known).
    `avg`, `best` and `worst` are over the measured scores. `rank` is 1 for the best score; of equal scores
    fewer steps, then the smaller id, come first, so that ranks are unique. `pass@k` uses the attempts that
    ended in success, failure or truncation.

    Args:
        columns: Names of the columns.
        score: The score of `avg`, `best`, `worst` and `rank`.
        pool: Relation with `episode_id`, `key`, `outcome`, `n_steps` and `score`.

    Raises:
        QueryError: k of `pass@k` is out of range.
    """
    wanted = sorted(set(columns))
    best, worst = ("min", "max") if score is not None and score.is_less_better else ("max", "min")
    known = {
        "n": "count(*)",
        "n_success": "CASE WHEN bool_or(outcome <> 'unknown') THEN count_if(outcome = 'success') END",
        # sorted first: a sum of doubles depends on their order, and DuckDB guarantees none
        "avg": "list_avg(list_sort(list(score) FILTER (score IS NOT NULL)))",
        "best": f"{best}(score)",
        "worst": f"{worst}(score)",
    }
    simple = [f"{known[name]} AS {quoted(name)}" for name in wanted if name in known]
    passes = [
        f"{pass_at_k(_attempts(match[1]), n='n_rated', c='n_passed')} AS {quoted(name)}"
        for name in wanted
        if (match := _PASS.fullmatch(name))
    ]
    rated = f"count_if(outcome IN {_RATED}) AS n_rated, count_if(outcome = 'success') AS n_passed"
    by = score.best_first if score is not None else "NULL"
    rank = (
        f", CASE WHEN score IS NOT NULL THEN row_number() OVER (PARTITION BY key ORDER BY {by}, n_steps, "
        "episode_id) END AS rank"
        if "rank" in wanted
        else ""
    )
    counted = f"SELECT {', '.join(['key', *simple, rated])} FROM {pool} GROUP BY key"
    grouped = f"SELECT {', '.join(['* EXCLUDE (n_rated, n_passed)', *passes])} FROM ({counted})"
    return (
        f"SELECT * EXCLUDE (key) FROM (SELECT episode_id, key{rank} FROM {pool}) JOIN ({grouped}) USING (key)"
    )


def is_about_groups(column: str) -> bool:
    """Whether a column of a condition is about the episode's group."""
    return column in STATISTICS or _PASS.fullmatch(column) is not None


def _attempts(text: str) -> int:
    k = int(text)
    if not 1 <= k <= _MOST_ATTEMPTS:
        raise QueryError(f"pass@{text}: k is from 1 to {_MOST_ATTEMPTS:,}")
    return k
