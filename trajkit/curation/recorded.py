"""Read what replay needs of a store's episodes, some thousand steps at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import duckdb

from trajkit.curation.derive import Derivation
from trajkit.curation.replaying import StoredEpisode, StoredStep, Verdict, unchecked
from trajkit.environments.guard import RETURN_NAME
from trajkit.store.layout import quoted

_STEPS_PER_SPAN = 4096


class Span(NamedTuple):
    """Episodes that are neighbours by id."""

    episodes: list[tuple[str | None, StoredEpisode | Verdict]]
    """Each with its environment; those that cannot be replayed as verdicts."""
    n_steps: int
    """Steps that they have."""


def stored(derivation: Derivation, is_named: bool) -> Iterator[Span]:
    """The episodes by id, some thousand steps at a time.

    Args:
        derivation: Has the store.
        is_named: An environment was named, so that an episode need not name one.
    """
    reading = derivation.connection.cursor()  # the derivation's own connection takes the verdicts meanwhile
    has_return = any(
        m.name == RETURN_NAME and m.level == "episode" for m in derivation.store.manifest.metrics
    )
    score = f"CAST(metrics.{quoted(RETURN_NAME)} AS DOUBLE)" if has_return else "CAST(NULL AS DOUBLE)"
    spans = reading.execute(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, (sum(n_steps + 1) OVER "
        f"(ORDER BY episode_id) - 1) // {_STEPS_PER_SPAN} AS span FROM episodes) GROUP BY span ORDER BY 1"
    ).fetchall()
    for lowest, highest in spans:
        steps = _steps_of(reading, lowest, highest)
        episodes = reading.execute(
            "SELECT episode_id, env_id, task, seed, initial_state_hash, total_reward, "
            f"{score} FROM episodes WHERE episode_id BETWEEN ? AND ? ORDER BY episode_id",
            [lowest, highest],
        ).fetchall()
        yield Span(
            [_episode(row, steps.get(row[0], ()), is_named) for row in episodes],
            sum(map(len, steps.values())),
        )


def _steps_of(
    connection: duckdb.DuckDBPyConnection, lowest: str, highest: str
) -> dict[str, tuple[StoredStep, ...]]:
    names = ", ".join("CAST(action AS VARCHAR)" if name == "action" else name for name in StoredStep._fields)
    rows = connection.execute(
        f"SELECT episode_id, {names} FROM steps WHERE episode_id BETWEEN ? AND ? "
        "ORDER BY episode_id, step_index",
        [lowest, highest],
    ).fetchall()
    found: dict[str, list[StoredStep]] = {}
    for episode_id, *values in rows:
        found.setdefault(episode_id, []).append(StoredStep(*values))
    return {episode_id: tuple(steps) for episode_id, steps in found.items()}


def _episode(
    row: Sequence[Any], steps: Sequence[StoredStep], is_named: bool
) -> tuple[str | None, StoredEpisode | Verdict]:
    """An episode with its environment, or why it cannot be replayed."""
    episode_id, env_id, task, seed, initial_state_hash, total_reward, episode_return = row
    given = {
        "environment": is_named or env_id is not None,
        "task": task is not None,
        "seed": seed is not None,
        "steps": bool(steps),
    }
    if missing := [what for what, is_given in given.items() if not is_given]:
        return None, unchecked(episode_id, f"no {' and no '.join(missing)}")
    return env_id, StoredEpisode(
        episode_id, task, seed, initial_state_hash, total_reward, episode_return, tuple(steps)
    )
