"""Read the columns of a store that a scheme needs, and write weights, or sums of rewards, into a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trajkit.curation.advantages import Advantages, Attempts, Scheme, advantages, compare
from trajkit.curation.derive import Derivation
from trajkit.curation.keys import group_key
from trajkit.curation.selection.groups import Score
from trajkit.curation.weights.spread import Weights
from trajkit.errors import DataError
from trajkit.store.engine import literal
from trajkit.store.layout import quoted

ZERO = "weight 0"
"""The `mask_reason` of a step whose weight is 0. A new weighting replaces only this reason."""

_ACTS = "(action_executed IS NOT NULL OR reward IS NOT NULL OR terminated IS NOT NULL)"
"""SQL over `steps`: whether a step acted on the environment, and was not a model call before an action. If no
step of an episode says that it acted, all of them count as acting."""

_STEPS_AT_ONCE = 200_000
_Row = tuple[str, int, float | None, bool]
_LEARNED = f"(loss_weight <> 0 OR mask_reason = '{ZERO}')"
_TASKS = """
    CREATE OR REPLACE TEMP TABLE trajkit_task AS
    SELECT episode_id, coalesce(nullif(concat_ws('/', env_id, task), ''), 'unknown') AS task FROM episodes
"""
_PLAYED = f"""
    CREATE OR REPLACE TEMP TABLE trajkit_played AS
    SELECT episode_id, bool_or({_LEARNED}) AS is_learned, bool_or({_ACTS}) AS has_acts,
        bool_or({_ACTS}) AND bool_and(reward IS NOT NULL OR NOT {_ACTS}) AS has_rewards,
        bool_or(truncated) AND NOT coalesce(bool_or(terminated), false) AS is_cut_off
    FROM steps GROUP BY episode_id
"""
# numbers follow the ids, so that results do not depend on the order of rows
_ATTEMPTS = """
    CREATE OR REPLACE TEMP TABLE trajkit_attempt AS
    SELECT *, row_number() OVER (ORDER BY episode_id) - 1 AS number,
        dense_rank() OVER (ORDER BY key) AS group_number, dense_rank() OVER (ORDER BY task) AS task_number
    FROM (
        SELECT episode_id, CAST({score} AS DOUBLE) AS score, k.key, k.has_key, t.task,
            e.outcome <> 'error' AS is_whole, coalesce(p.is_learned, false) AS is_learned,
            coalesce(has_acts, false) AS has_acts, coalesce(has_rewards, false) AS has_rewards,
            coalesce(is_cut_off, false) AS is_cut_off
        FROM episodes e JOIN trajkit_task t USING (episode_id)
            JOIN (SELECT episode_id, key, has_key FROM {keys}) k USING (episode_id)
            LEFT JOIN trajkit_played p USING (episode_id)
        WHERE p.is_learned OR {score} IS NOT NULL
        QUALIFY coalesce(bool_or(p.is_learned) OVER (PARTITION BY k.key), false)
    )
"""
# an attempt that is not learned is still compared with its group if all its rewards are known
_STEPS = f"""
    SELECT number, step_index, {_LEARNED} AS is_learned, CAST(reward AS DOUBLE) AS reward,
        {_ACTS} OR NOT has_acts AS acting, {{state}} AS state, CAST({{value}} AS DOUBLE) AS value
    FROM steps s JOIN trajkit_attempt a USING (episode_id)
    WHERE a.is_learned OR (a.is_whole AND a.has_rewards) ORDER BY 1, 2
"""
_WEIGHTED = f"""
    CREATE OR REPLACE TEMP VIEW trajkit_weighted_steps AS
    SELECT s.* REPLACE (coalesce(w.value, s.loss_weight) AS loss_weight, CASE
        WHEN w.value IS NULL THEN s.mask_reason WHEN w.value = 0 THEN '{ZERO}' END AS mask_reason)
    FROM steps s LEFT JOIN trajkit_weight w USING (episode_id, step_index)
"""


class Gains(NamedTuple):
    """Scores of the learned episodes, and the weights of their steps."""

    n_episodes: int
    least: float
    """Smallest score; NaN if the scheme uses none."""
    most: float
    found: Advantages
    """The weights of all compared steps, and the counts of groups."""
    n_keyless: int
    """Episodes without a column of the group's key, each of which is a group of its own."""
    n_cut_off: int
    """Truncated episodes."""
    weights: Weights
    """The final weights."""


def weigh(
    derivation: Derivation,
    scheme: Scheme,
    *,
    score: Score | None,
    by: Sequence[str] | None,
    critic: str | None,
    normalize: Literal["none", "task", "all"],
    **options: Any,
) -> Gains:
    """Create a table `trajkit_weight` of the learned steps with their weights.

    Also creates the view `trajkit_weighted_steps`. No texts are read: a step is five numbers here.

    Args:
        derivation: The store.
        scheme: How the weight is computed.
        score: The score of episodes; None for a scheme that uses none.
        by: Columns of a group, see `group_key`; None for the task.
        critic: For `gae`: the metric of steps that is the value of the state before a step.
        normalize: Divide by the mean absolute weight of the same task, or of all.
        **options: Numbers of the scheme, as in `advantages`.

    Raises:
        DataError: A learned episode has no score, or a step of it no reward or no value of the critic.
        StoreError: A step occurs more than once.
    """
    derivation.refuse_repeated_steps()
    run = derivation.connection.execute
    run(_TASKS)
    run(_PLAYED)
    keys = "(SELECT episode_id, task AS key, true AS has_key FROM trajkit_task)"
    if by is not None:
        keys = group_key(derivation.connection, derivation.store, by).relation
    sign = "-" if score is not None and score.is_less_better else ""
    run(_ATTEMPTS.format(score=f"{sign}({score.sql})" if score else "NULL", keys=keys))
    _refuse_unknown(derivation, scheme, score, critic)
    episodes = _columns(run("SELECT * EXCLUDE (episode_id, key, task) FROM trajkit_attempt ORDER BY number"))
    state = "coalesce(hash(s.observation), hash(s.episode_id, s.step_index))"
    value = f"s.metrics.{quoted(critic)}" if critic else "NULL"
    steps = _columns(run(_STEPS.format(state=state if scheme == Scheme.GIGPO else "0", value=value)))
    found = advantages(
        scheme,
        Attempts(
            episode=steps["number"],
            score=episodes["score"],
            group=episodes["group_number"],
            reward=steps["reward"],
            state=steps["state"].astype(np.int64),
            value=steps["value"],
            acting=steps["acting"],
        ),
        **options,
    )
    learned = steps["is_learned"]
    number, values = steps["number"][learned], found.values[learned]
    if normalize != "none":
        key = episodes["task_number"][number] if normalize == "task" else np.zeros_like(number)
        among = compare(np.abs(values), key)
        size = among.mean[among.group]
        values = np.divide(values, size, out=values.copy(), where=size > 0)
    made = pa.table({"number": number, "step_index": steps["step_index"][learned], "value": values})
    derivation.connection.register("trajkit_made", made)
    run(
        "CREATE OR REPLACE TEMP TABLE trajkit_weight AS SELECT episode_id, step_index, value "
        "FROM trajkit_made JOIN trajkit_attempt USING (number)"
    )
    derivation.connection.unregister("trajkit_made")
    run(_WEIGHTED)
    tasks = run("SELECT DISTINCT task FROM trajkit_attempt ORDER BY task").fetchall()
    counting = episodes["is_learned"]
    scores = episodes["score"][counting]
    return Gains(
        n_episodes=len(scores),
        least=float(scores.min(initial=np.inf)),
        most=float(scores.max(initial=-np.inf)),
        found=found,
        n_keyless=int((counting & ~episodes["has_key"]).sum()),
        n_cut_off=int((counting & episodes["is_cut_off"]).sum()),
        weights=Weights(number, values, [name for (name,) in tasks], episodes["task_number"] - 1),
    )


def _refuse_unknown(derivation: Derivation, scheme: Scheme, score: Score | None, critic: str | None) -> None:
    run = derivation.connection.execute
    if score is not None:
        ((n_unscored, n_learned, example),) = run(
            "SELECT count(*) FILTER (WHERE score IS NULL), count(*), "
            "min(episode_id) FILTER (WHERE score IS NULL) FROM trajkit_attempt WHERE is_learned"
        ).fetchall()
        if n_unscored:
            raise DataError(
                f"{n_unscored:,} of {n_learned:,} episodes have no {score.name}, such as {example}",
                hint=f"trajkit select --where '{score.name} is not null', or another --score",
            )
    if not scheme.needs_rewards:
        return
    no_value = f"({_ACTS} OR NOT has_acts) AND s.metrics.{quoted(critic)} IS NULL" if critic else "false"
    missing = run(
        f"SELECT episode_id, step_index, is_whole, {no_value} FROM steps s "
        "JOIN trajkit_attempt USING (episode_id) WHERE is_learned "
        f" AND (NOT is_whole OR {no_value} OR (({_ACTS} OR NOT has_acts) AND reward IS NULL)) "
        "ORDER BY 1, 2 LIMIT 1"
    ).fetchone()
    if missing is None:
        return
    episode_id, step_index, is_whole, lacks_value = missing
    if lacks_value:
        raise DataError(
            f"episode {episode_id} step {step_index} has no {critic}",
            hint="gae needs the critic's value of the state before every step",
        )
    unknown = (
        f"episode {episode_id} step {step_index}: its reward"
        if is_whole
        else f"episode {episode_id} was not played to its end: its further reward"
    )
    raise DataError(
        f"{unknown} is unknown",
        hint="`trajkit replay --fill` adds rewards; `trajkit select --where` leaves episodes out; "
        "other schemes need only the score of the episode",
    )


def _columns(result: duckdb.DuckDBPyConnection) -> dict[str, npt.NDArray[Any]]:
    """Return columns as arrays; NaN for null."""
    return {name: np.ma.filled(column, np.nan) for name, column in result.fetchnumpy().items()}


def add_up(derivation: Derivation, table: str) -> None:
    """Create a table of `episode_id`, `step_index` and `value`, the sum of the rewards up to and with a step.

    The sum is null from the first unknown reward on. Sums are computed in Python, a bounded number of steps
    at a time: DuckDB adds in any order, and the last bit would depend on its threads.
    """
    connection = derivation.connection
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} (episode_id VARCHAR, step_index BIGINT, value DOUBLE)"
    )
    for rows in _batches(derivation):
        sums = [each for _, own in itertools.groupby(rows, lambda row: row[0]) for each in _sums(list(own))]
        made = pa.table(
            {
                "episode_id": pa.array([row[0] for row in rows], pa.string()),
                "step_index": pa.array([row[1] for row in rows], pa.int64()),
                "value": pa.array(sums, pa.float64()),
            }
        )
        connection.register("trajkit_sums", made)
        connection.execute(f"INSERT INTO {table} SELECT * FROM trajkit_sums")
        connection.unregister("trajkit_sums")


def _sums(rows: list[_Row]) -> Iterator[float | None]:
    has_acts = any(acts for *_, acts in rows)
    total: float | None = 0.0
    for _, _, reward, acts in rows:
        if acts or not has_acts:
            total = None if reward is None or total is None else total + reward
        yield total


def _batches(derivation: Derivation) -> Iterator[list[_Row]]:
    connection = derivation.connection
    spans = connection.execute(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, CAST((sum(n_steps + 1) OVER "
        f"(ORDER BY episode_id) - n_steps - 1) // {_STEPS_AT_ONCE} AS BIGINT) AS batch FROM episodes) "
        "GROUP BY batch ORDER BY batch"
    ).fetchall()
    for lowest, highest in spans:
        yield connection.execute(
            f"SELECT episode_id, step_index, reward, {_ACTS} FROM steps "
            f"WHERE episode_id BETWEEN {literal(lowest)} AND {literal(highest)} ORDER BY 1, 2"
        ).fetchall()
