"""Weights as tables: what each episode earned, what that is against, and what each learned step then counts.

Sums over rows are made in Python and rounded once (`math.fsum`): no last bit depends on the order of rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from trajkit.curation.derive import Derivation
from trajkit.curation.groups import Score
from trajkit.curation.keys import group_key
from trajkit.curation.rewards import tabulate, to_go
from trajkit.errors import DataError

ZERO = "weight 0"
"""The `mask_reason` of a step whose weight came out as 0; no other reason is ever undone."""

_LEARNED = f"(loss_weight <> 0 OR mask_reason = '{ZERO}')"
_TASKS = """
    CREATE OR REPLACE TEMP TABLE trajkit_task AS
    SELECT episode_id, coalesce(nullif(concat_ws('/', env_id, task), ''), 'unknown') AS task FROM episodes
"""
_LEARNING = f"""
    CREATE OR REPLACE TEMP TABLE trajkit_learning AS
    SELECT DISTINCT episode_id FROM steps WHERE {_LEARNED}
"""
_WEIGHTED = f"""
    CREATE OR REPLACE TEMP TABLE trajkit_weight AS
    SELECT s.episode_id, s.step_index, CAST({{value}} AS DOUBLE) + 0.0 AS value
    FROM steps s {{joined}} WHERE {_LEARNED}
"""
_STEPS = f"""
    CREATE OR REPLACE TEMP VIEW trajkit_weighted_steps AS
    SELECT s.* REPLACE (coalesce(w.value, s.loss_weight) AS loss_weight, CASE
        WHEN w.value IS NULL THEN s.mask_reason WHEN w.value = 0 THEN '{ZERO}' END AS mask_reason)
    FROM steps s LEFT JOIN trajkit_weight w USING (episode_id, step_index)
"""


class Gains(NamedTuple):
    """What the episodes to learn from earned."""

    n_episodes: int
    least: float
    most: float
    has_mean: bool
    """Whether each was compared with a mean."""
    n_groups: int
    """Groups with an episode to learn from."""
    n_silent: int
    """Those of them in which all scores are equal, or there is one."""
    n_keyless: int
    """Episodes that lack what makes a group, each of which is one of its own."""


def weigh(
    derivation: Derivation,
    *,
    score: Score | None,
    gamma: float | None,
    has_mean: bool,
    by: Sequence[str] | None,
    exponential: tuple[float, float] | None,
) -> Gains | None:
    """Leave a table `trajkit_weight` of the steps that are learned, and what is made of it.

    Beside it: `trajkit_task` (the task of each episode) and the view `trajkit_weighted_steps`.

    Args:
        derivation: The store.
        score: What the episodes are scored by; None for weights of 1, or with `gamma` for returns-to-go.
        gamma: Discount of returns-to-go.
        has_mean: Take the mean of the group away.
        by: What makes a group, see `group_key`; None for the task.
        exponential: Temperature and clip of the exponential.

    Raises:
        DataError: An episode to learn from has no score, or lacks a reward.
        StoreError: A step is there more than once.
    """
    derivation.refuse_repeated_steps()
    run = derivation.connection.execute
    run(_TASKS)
    run(_LEARNING)
    gains = None
    if score is not None:
        gains = _gains(derivation, score, has_mean, by)
        value, joined = _of_score(has_mean, exponential), "JOIN trajkit_gain g USING (episode_id)"
    elif gamma is not None:
        tabulate(derivation, "trajkit_to_go", functools.partial(to_go, gamma=gamma), of="trajkit_learning")
        value, joined = "g.value", "JOIN trajkit_to_go g USING (episode_id, step_index)"
    else:
        value, joined = "1", ""
    run(_WEIGHTED.format(value=value, joined=joined))
    run(_STEPS)
    return gains


def normalize(derivation: Derivation, *, per_task: bool) -> None:
    """Divide the weights by the mean of their sizes, over all steps or those of the same task."""
    key = "task" if per_task else "''"
    _tabulate(
        derivation,
        "trajkit_size",
        f"SELECT {key} AS key, list(abs(value)) FROM trajkit_weight JOIN trajkit_task USING (episode_id) "
        "GROUP BY ALL",
        {"size": _mean},
    )
    derivation.connection.execute(
        "CREATE OR REPLACE TEMP TABLE trajkit_weight AS SELECT episode_id, step_index, "
        "CASE WHEN size > 0 THEN value / size ELSE value END AS value FROM trajkit_weight "
        f"JOIN trajkit_task USING (episode_id) JOIN trajkit_size ON key = {key}"
    )


def _gains(derivation: Derivation, score: Score, has_mean: bool, by: Sequence[str] | None) -> Gains:
    """Leave a table `trajkit_gain` of every scored episode, with the mean of its group."""
    connection = derivation.connection
    keys = (
        "(SELECT episode_id, task AS key, true AS has_key FROM trajkit_task)"
        if by is None
        else group_key(connection, derivation.store, by).relation
    )
    sign = "-" if score.is_less_better else ""
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE trajkit_score AS SELECT episode_id, key, has_key, "
        f"{sign}({score.sql}) AS gain, "
        "episode_id IN (SELECT episode_id FROM trajkit_learning) AS is_learned "
        f"FROM episodes JOIN (SELECT episode_id, key, has_key FROM {keys}) USING (episode_id)"
    )
    _refuse_unscored(derivation, score)
    _tabulate(
        derivation,
        "trajkit_mean",
        "SELECT key, list(gain) FROM trajkit_score WHERE gain IS NOT NULL GROUP BY key",
        {"mean": _mean, "least": min, "most": max},
    )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE trajkit_gain AS SELECT episode_id, gain, mean FROM trajkit_score "
        "JOIN trajkit_mean USING (key) WHERE is_learned"
    )
    ((n, least, most, *groups),) = connection.execute(
        "SELECT count(*), min(gain), max(gain), count(DISTINCT key), "
        "count(DISTINCT key) FILTER (WHERE m.least = m.most), count(*) FILTER (WHERE NOT has_key) "
        "FROM trajkit_score JOIN trajkit_mean m USING (key) WHERE is_learned"
    ).fetchall()
    return Gains(n, least or 0.0, most or 0.0, has_mean, *groups)


def _refuse_unscored(derivation: Derivation, score: Score) -> None:
    ((n_unscored, n_learned, example),) = derivation.connection.execute(
        "SELECT count(*) FILTER (WHERE gain IS NULL), count(*), min(episode_id) FILTER (WHERE gain IS NULL) "
        "FROM trajkit_score WHERE is_learned"
    ).fetchall()
    if n_unscored:
        raise DataError(
            f"{n_unscored:,} of {n_learned:,} episodes have no {score.name}, such as {example}",
            hint=f"trajkit select --where '{score.name} is not null', or another --score",
        )


def _of_score(has_mean: bool, exponential: tuple[float, float] | None) -> str:
    gain = "g.gain - g.mean" if has_mean else "g.gain"
    if exponential is None:
        return gain
    temperature, clip = exponential
    # compared before the exponential is taken: it never overflows
    power = f"(({gain}) / {temperature!r}::DOUBLE)"
    return f"CASE WHEN {power} >= {math.log(clip)!r}::DOUBLE THEN {clip!r}::DOUBLE ELSE exp({power}) END"


def _tabulate(
    derivation: Derivation, table: str, lists: str, made: dict[str, Callable[[Sequence[float]], float]]
) -> None:
    """Leave a table of what Python makes of each group's numbers, which come in any order."""
    rows = derivation.connection.execute(lists).fetchall()
    columns: dict[str, Iterable[object]] = {"key": [key for key, _ in rows]}
    for name, make in made.items():
        columns[name] = [make(numbers) for _, numbers in rows]
    arrow = pa.table(
        {
            name: pa.array(values, pa.string() if name == "key" else pa.float64())
            for name, values in columns.items()
        }
    )
    derivation.connection.register("trajkit_made", arrow)
    derivation.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM trajkit_made")
    derivation.connection.unregister("trajkit_made")


def _mean(numbers: Sequence[float]) -> float:
    """The mean, rounded in the same way whatever their order; of equal numbers exactly that number."""
    try:
        mean = math.fsum(numbers) / len(numbers)
    except OverflowError:
        mean = math.fsum(number / len(numbers) for number in numbers)
    return min(max(mean, min(numbers)), max(numbers))
