"""Groups of attempts at the same thing, and what a condition may ask of an episode and of its group.

The score of an episode is its metric `episode_return` when the store has one, else `total_reward`, or the
metric that is named. A group is what `trajkit.curation.keys` says: environment, task and seed, or any
columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import duckdb

from trajkit.errors import QueryError
from trajkit.store.layout import quoted
from trajkit.store.nameable import Names, nearest
from trajkit.store.names import episode_metrics
from trajkit.store.names import names_of as store_names
from trajkit.store.reader import Store

STATISTICS = ("n", "n_success", "avg", "best", "worst", "rank")
"""What a condition may ask of an episode's group, and its place in it; `pass@k` besides."""
_PASS = re.compile(r"pass@([0-9]+)")
_MOST_ATTEMPTS = 1_000
_RATED = "('success', 'failure', 'truncated')"


class Score(NamedTuple):
    """How good an episode was."""

    name: str
    """The metric, or `total_reward`."""
    sql: str
    """A double over `episodes`, null when it was never measured."""
    is_less_better: bool = False
    """Whether the store says that the metric is to be kept small."""

    @property
    def best_first(self) -> str:
        """What sorts the column `score`, the best first and the unmeasured last."""
        return f"score {'ASC' if self.is_less_better else 'DESC'} NULLS LAST"


def score_of(store: Store, connection: duckdb.DuckDBPyConnection, name: str | None = None) -> Score:
    """The score that groups, weights and pairs go by.

    Args:
        store: Whose episodes.
        connection: Has its view `episodes`.
        name: A metric of episodes, or `total_reward`; None for `episode_return` if the store has that metric,
            else `total_reward`.

    Raises:
        QueryError: There is no such metric, or nothing to go by; the hint says what there is.
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
    """What a condition on episodes may name, and the SQL of each column that is not about groups.

    A bare name is a column, else something about groups, else a metric; `metrics.NAME` and `tags.KEY` always
    say which. Any `pass@k` may be named besides.

    Args:
        store: Whose episodes.
        connection: Has its view `episodes`; the keys of the tags are read from it.
    """
    return store_names(store, connection, more={name: name for name in STATISTICS}, patterns=(_PASS,))


def pass_at_k(k: int, *, n: str, c: str) -> str:
    """SQL for the chance that one of k attempts succeeds, estimated without bias.

    It is 1 - C(n - c, k) / C(n, k), as a product: Chen et al. 2021, "Evaluating Large Language Models Trained
    on Code", arXiv:2107.03374, equation 1. Null when there are fewer than k attempts.

    Args:
        k: How many attempts.
        n: SQL of how many were seen.
        c: SQL of how many of them succeeded.
    """
    factors = f"list_transform(range({k}), lambda j: greatest(({n} - {c} - j) / ({n} - j), 0.0))"
    return f"CASE WHEN {n} >= {k} THEN 1.0 - list_product({factors}) END"


def statistics_sql(columns: Iterable[str], score: Score | None, pool: str) -> str:
    """A SELECT of `episode_id` and the columns about groups that were asked for.

    `n` counts the episodes of the group, `n_success` those that succeeded (null when no outcome is known);
    `avg`, `best` and `worst` are of the measured scores. `rank` is 1 for the best of them; of equal ones the
    one with fewer steps, then the smaller id, comes first, so that no two have the same. `pass@k` goes by the
    attempts that ended in a success, a failure or a limit.

    Args:
        columns: Which.
        score: What `avg`, `best`, `worst` and `rank` go by.
        pool: Relation with `episode_id`, `key`, `outcome`, `n_steps` and `score`.

    Raises:
        QueryError: `pass@k` of no attempt, or of very many.
    """
    wanted = sorted(set(columns))
    best, worst = ("min", "max") if score is not None and score.is_less_better else ("max", "min")
    known = {
        "n": "count(*)",
        "n_success": "CASE WHEN bool_or(outcome <> 'unknown') THEN count_if(outcome = 'success') END",
        # sorted first: a sum of doubles depends on their order, and DuckDB keeps none
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
    """Whether a column of a condition is about the group of an episode."""
    return column in STATISTICS or _PASS.fullmatch(column) is not None


def _attempts(text: str) -> int:
    k = int(text)
    if not 1 <= k <= _MOST_ATTEMPTS:
        raise QueryError(f"pass@{text}: k is from 1 to {_MOST_ATTEMPTS:,}")
    return k
