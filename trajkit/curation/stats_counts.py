"""What of a dataset is counted: the worlds and actions seen, what repeats, and what will be learned."""

from __future__ import annotations

import math

import duckdb

from trajkit.curation.intervals import effective_size, entropy_bits
from trajkit.curation.stats_model import ActionCount, Coverage, Duplicates, Weights
from trajkit.curation.stats_read import one, values_of

_MOST_ACTIONS = 20


def coverage(connection: duckdb.DuckDBPyConnection) -> Coverage:
    """How much of the world the episodes have seen."""
    n_tasks, n_worlds, n_without_seed, n_states, n_without_state = one(
        connection,
        "SELECT count(DISTINCT task_name), count(DISTINCT (env_id, task, seed)) FILTER (seed IS NOT NULL), "
        "count(*) - count(seed), count(DISTINCT (env_id, initial_state_hash)) "
        "FILTER (initial_state_hash IS NOT NULL), count(*) - count(initial_state_hash) FROM e",
    )
    n_without_action, n_invalid, n_unjudged = one(
        connection,
        "SELECT count(*) - count(action), count(*) FILTER (NOT action_valid), "
        "count(*) - count(action_valid) FROM s",
    )
    actions = "SELECT action, count(*) AS n FROM s WHERE action IS NOT NULL GROUP BY action"
    most = connection.execute(f"{actions} ORDER BY n DESC, action LIMIT {_MOST_ACTIONS}").fetchall()
    frequencies = values_of(connection, f"SELECT n FROM ({actions})")
    bits = entropy_bits(frequencies)
    return Coverage(
        n_tasks=n_tasks,
        n_worlds=n_worlds,
        n_without_seed=n_without_seed,
        n_initial_states=n_states,
        n_without_state=n_without_state,
        n_actions=frequencies.n,
        entropy_bits=bits,
        entropy_share=bits / math.log2(frequencies.n) if frequencies.n > 1 else None,
        actions=tuple(ActionCount(action=action, n=n) for action, n in most),
        n_without_action=n_without_action,
        n_invalid=n_invalid,
        n_unjudged=n_unjudged,
    )


def duplicates(connection: duckdb.DuckDBPyConnection) -> Duplicates:
    """How much is there more than once."""
    n_episodes, n_distinct = one(
        connection,
        """
        SELECT count(*), count(DISTINCT (env_id, task, start, said)) FROM (
            SELECT env_id, task, coalesce(initial_state_hash, CAST(seed AS VARCHAR)) AS start, said
            FROM e JOIN (
                SELECT store, episode_id, hash(list(action ORDER BY step_index)) AS said FROM s
                WHERE action IS NOT NULL GROUP BY store, episode_id
            ) USING (store, episode_id)
        ) WHERE start IS NOT NULL
        """,
    )
    n_answers, n_different, n_prompts = one(
        connection, "SELECT count(*), count(DISTINCT (prompt, answer)), count(DISTINCT prompt) FROM answers"
    )
    return Duplicates(
        n_episodes=n_episodes,
        n_same_episodes=n_episodes - n_distinct,
        n_answers=n_answers,
        n_same_answers=n_answers - n_different,
        n_prompts=n_prompts,
    )


def weights(connection: duckdb.DuckDBPyConnection) -> Weights:
    """What training will learn from."""
    learned = "s WHERE reason IS NULL"
    not_learned = connection.execute(
        "SELECT reason, count(*) FROM s WHERE reason IS NOT NULL GROUP BY reason ORDER BY 2 DESC, 1"
    ).fetchall()
    n_learned, n_episodes, n_tokens, n_uncounted = one(
        connection,
        "SELECT count(*), count(DISTINCT (store, episode_id)), CAST(sum(n_output_tokens) AS BIGINT), "
        f"count(*) - count(n_output_tokens) FROM {learned}",
    )
    of_steps = values_of(connection, f"SELECT loss_weight FROM {learned}")
    of_episodes = values_of(
        connection,
        f"SELECT list_sum(list(loss_weight ORDER BY step_index)) FROM {learned} GROUP BY store, episode_id",
    )
    return Weights(
        n_learned=n_learned,
        n_episodes_learned=n_episodes,
        not_learned=dict(not_learned),
        least=float(of_steps.value[0]) if n_learned else None,
        mean=of_steps.total / n_learned if n_learned else None,
        most=float(of_steps.value[-1]) if n_learned else None,
        effective_steps=effective_size(of_steps),
        effective_episodes=effective_size(of_episodes),
        n_tokens=n_tokens,
        n_uncounted=n_uncounted,
    )
