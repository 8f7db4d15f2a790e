"""The rewards of each episode in order: their sums so far and their returns-to-go, to the same last bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from trajkit.curation.derive import Derivation
from trajkit.errors import DataError
from trajkit.store.engine import literal

_STEPS_AT_ONCE = 200_000


class Rewards(NamedTuple):
    """What an episode earned, step by step."""

    episode_id: str
    is_whole: bool
    """Whether it was played to its end."""
    indices: list[int]
    """Places of its steps."""
    rewards: list[float | None]
    """Null where nobody measured it, and where a step is only a call of a model that did not act."""
    is_acting: list[bool]
    """Which steps acted on the environment."""


Values = Callable[[Rewards], Sequence[float | None]]
"""A number for each step of an episode, or null."""


def tabulate(derivation: Derivation, table: str, values: Values, *, of: str = "episodes") -> None:
    """Leave a table of `episode_id`, `step_index` and `value`, made a bounded number of steps at a time.

    The sums are made in Python, step by step: an engine adds up in whatever order it likes, and the last bit
    of a weight would depend on the number of threads.

    Args:
        derivation: The store.
        table: Name of the table.
        values: Makes the numbers of one episode.
        of: Relation with the `episode_id`s of the episodes.
    """
    connection = derivation.connection
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} (episode_id VARCHAR, step_index BIGINT, value DOUBLE)"
    )
    for batch in _batches(derivation, of):
        ids: list[str] = []
        indices: list[int] = []
        numbers: list[float | None] = []
        for episode in batch:
            ids += [episode.episode_id] * len(episode.indices)
            indices += episode.indices
            numbers += values(episode)
        rows = pa.table(
            {
                "episode_id": pa.array(ids, pa.string()),
                "step_index": pa.array(indices, pa.int64()),
                "value": pa.array(numbers, pa.float64()),
            }
        )
        connection.register("trajkit_values", rows)
        connection.execute(f"INSERT INTO {table} SELECT * FROM trajkit_values")
        connection.unregister("trajkit_values")


def so_far(episode: Rewards) -> list[float | None]:
    """The sum of the rewards up to and with each step; null from the first reward on that is unknown."""
    sums: list[float | None] = []
    total: float | None = 0.0
    for reward, is_acting in zip(episode.rewards, episode.is_acting, strict=True):
        if is_acting:
            total = None if reward is None or total is None else total + reward
        sums.append(total)
    return sums


def to_go(episode: Rewards, *, gamma: float) -> list[float]:
    """What each step and those after it earned, discounted: G_t = r_t + gamma G_{t+1}.

    A call of a model that did not act itself has the return of the action that it led to. Calls after the
    last action led to nothing: 0.

    Raises:
        DataError: A reward is unknown, or the episode was not played to its end.
    """
    if not episode.is_whole:
        raise _unknown(f"episode {episode.episode_id} was not played to its end: what it would have earned")
    returns: list[float] = []
    total = 0.0
    for index, reward, is_acting in zip(
        reversed(episode.indices), reversed(episode.rewards), reversed(episode.is_acting), strict=True
    ):
        if is_acting:
            if reward is None:
                raise _unknown(f"episode {episode.episode_id} step {index}: its reward")
            total = reward + gamma * total
        returns.append(total)
    return returns[::-1]


def _unknown(what: str) -> DataError:
    return DataError(
        f"{what} is unknown",
        hint="`trajkit replay --fill` adds rewards; `trajkit select --where` leaves episodes out; "
        "other schemes need only the score of the episode",
    )


def _batches(derivation: Derivation, of: str) -> Iterator[Iterator[Rewards]]:
    connection = derivation.connection
    spans = connection.execute(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, CAST((sum(n_steps + 1) OVER "
        f"(ORDER BY episode_id) - n_steps - 1) // {_STEPS_AT_ONCE} AS BIGINT) AS batch FROM episodes "
        f"WHERE episode_id IN (SELECT episode_id FROM {of})) GROUP BY batch ORDER BY batch"
    ).fetchall()
    for lowest, highest in spans:
        rows = connection.execute(
            "SELECT s.episode_id, outcome <> 'error', step_index, reward, "
            "action_executed IS NOT NULL OR reward IS NOT NULL OR terminated IS NOT NULL "
            "FROM steps s JOIN episodes e USING (episode_id) "
            f"WHERE s.episode_id BETWEEN {literal(lowest)} AND {literal(highest)} "
            f"AND s.episode_id IN (SELECT episode_id FROM {of}) ORDER BY 1, 3"
        ).fetchall()
        yield (
            _rewards(episode_id, list(own)) for episode_id, own in itertools.groupby(rows, lambda row: row[0])
        )


def _rewards(episode_id: str, rows: list[tuple[str, bool, int, float | None, bool]]) -> Rewards:
    acted = [row[4] for row in rows]
    return Rewards(
        episode_id,
        rows[0][1],
        [row[2] for row in rows],
        [row[3] for row in rows],
        # where nothing says which steps acted, each is taken for one that did
        acted if any(acted) else [True] * len(rows),
    )
