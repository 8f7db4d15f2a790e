"""List worlds that one group solved and another did not, with the last steps of both episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb

from trajkit.evaluation.groups import Source
from trajkit.evaluation.reports.model import Moment, Played, Regression

SHOWN = 10
"""Regressions of a comparison that are shown with steps; the others are only named."""
_LAST_STEPS = 12
_LONGEST_TEXT = 240

# the first attempt at each world represents it where there were several
_WORLDS = """
    SELECT task_name, seed, min(episode_id) AS episode_id, arg_min(store, episode_id) AS store,
        arg_min(outcome, episode_id) AS outcome, arg_min(n_steps, episode_id) AS n_steps
    FROM g WHERE group_name = ? AND seed IS NOT NULL AND outcome IN ('success', 'failure', 'truncated')
    GROUP BY task_name, seed
"""
_CHANGED = f"""
    SELECT task_name, seed, one.episode_id, one.store, one.outcome, one.n_steps,
        other.episode_id, other.store, other.outcome, other.n_steps
    FROM ({_WORLDS}) AS one JOIN ({_WORLDS}) AS other USING (task_name, seed)
    WHERE (one.outcome = 'success') <> (other.outcome = 'success') ORDER BY task_name, seed
"""
_MOMENTS = """
    SELECT observation, coalesce(action_executed, CASE json_type(action) WHEN 'NULL' THEN NULL
        WHEN 'VARCHAR' THEN action->>'$' ELSE CAST(action AS VARCHAR) END), action_valid, reward
    FROM {schema}.steps WHERE episode_id = ? ORDER BY step_index DESC LIMIT {limit}
"""


def changed(
    connection: duckdb.DuckDBPyConnection, sources: Sequence[Source], baseline: str, candidate: str
) -> tuple[list[Regression], int]:
    """Return the worlds that got worse, by task and seed, and the number that got better.

    Args:
        connection: The database after `read_groups`.
        sources: The stores.
        baseline: Name of the baseline group.
        candidate: Name of the candidate group.
    """
    rows = connection.execute(_CHANGED, [baseline, candidate]).fetchall()
    worse = [row for row in rows if row[4] == "success"]
    found = []
    for number, row in enumerate(worse):
        episodes = tuple(
            Played(
                group=name,
                episode_id=episode_id,
                store=sources[store].store.path,
                outcome=outcome,
                n_steps=n_steps,
                moments=tuple(_moments(connection, store, episode_id)) if number < SHOWN else (),
            )
            for name, (episode_id, store, outcome, n_steps) in (
                (baseline, row[2:6]),
                (candidate, row[6:10]),
            )
        )
        found.append(
            Regression(baseline=baseline, candidate=candidate, task=row[0], seed=row[1], episodes=episodes)
        )
    return found, len(rows) - len(worse)


def _moments(connection: duckdb.DuckDBPyConnection, store: int, episode_id: str) -> Iterator[Moment]:
    """Return the last steps of an episode, in order."""
    query = _MOMENTS.format(schema=f"store{store}", limit=_LAST_STEPS)
    for observation, action, is_valid, reward in reversed(connection.execute(query, [episode_id]).fetchall()):
        yield Moment(observation=_cut(observation), action=_cut(action), is_valid=is_valid, reward=reward)


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST_TEXT:
        return text
    return text[: _LONGEST_TEXT - 1] + "…"
