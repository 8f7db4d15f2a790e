"""Statistics of a dataset with their intervals: its contents, its duplicates, and its learned steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np

from trajkit.curation.statistics.intervals import (
    CONFIDENCE,
    Interval,
    Values,
    bootstrap,
    effective_size,
    entropy_bits,
    t_interval,
    wilson,
)
from trajkit.curation.statistics.model import (
    ActionCount,
    Coverage,
    Duplicates,
    Estimate,
    Group,
    Measured,
    Spread,
    Stage,
    Stats,
    Weights,
)
from trajkit.curation.statistics.read import (
    DIMENSIONS,
    OWN,
    grouped_values,
    metric_values,
    read,
    score_name,
    values_of,
)
from trajkit.errors import NothingMatched, RequestError, StoreError
from trajkit.schema import Manifest
from trajkit.store.engine import connect, first_line, interruptible, one_row
from trajkit.store.layout import MANIFEST_NAME
from trajkit.store.reader import Store, open_store, verify

MOST_GROUPS = 100
"""Maximum listed groups per kind, the largest first; the others are counted."""

_BARS = 20
_MEASURES = {
    "score": "score",
    "n_steps_each": "n_steps",
    "n_input_tokens": "n_input_tokens",
    "n_output_tokens": "n_output_tokens",
}

Intervals = Callable[[Values], Interval | None]
_MOST_ACTIONS = 20


def stats(
    *paths: str | Path,
    score: str | None = None,
    by: Sequence[str] = (),
    confidence: float = CONFIDENCE,
    resamples: int = 0,
    seed: int = 0,
    threads: int | None = None,
) -> Stats:
    """Compute statistics of a store, or of several that belong together, such as the sides of a split.

    Shares have Wilson's interval; means have Student's t, or the percentile bootstrap with `resamples` draws.
    The intervals assume independent episodes: with several attempts at one seed they are too narrow.

    Args:
        paths: Stores, or folders of stores.
        score: The metric whose mean is computed; None for `episode_return`, else `total_reward`.
        by: Columns, metrics or `tags.NAME` of further groups, such as customers.
        confidence: Confidence of every interval, between 0 and 1.
        resamples: Draws of the bootstrap; 0 for Student's t.
        seed: Seed of the bootstrap.
        threads: None for one per core; the numbers do not depend on it.

    Raises:
        StoreError: A path is not a store, or is damaged.
        QueryError: The metric does not exist.
        NothingMatched: There is no episode.
        RequestError: `confidence` is not between 0 and 1, or there is no path.
    """
    stores = [store for path in paths for store in stores_in(path)]
    if not stores:
        raise RequestError("no store is named")
    for store in stores:
        verify(store)
    named = score_name(stores, score)
    if not any(store.manifest.counts.n_episodes for store in stores):
        raise NothingMatched(f"{stores[0].path} has no episodes, so it has no statistics")
    means: Intervals = functools.partial(t_interval, confidence=confidence)
    interval = "Student's t"
    if resamples:
        means = functools.partial(bootstrap, resamples=resamples, seed=seed, confidence=confidence)
        interval = f"bootstrap, {resamples:,} resamples, seed {seed}"
    with connect(threads=threads) as connection:
        try:
            with interruptible(connection):
                read(connection, stores, named, by)
                return _described(connection, stores, named, confidence, interval, means, by)
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise StoreError(f"{stores[0].path} could not be read: {first_line(error)}") from error


def stores_in(path: str | Path) -> Iterator[Store]:
    """Yield the store, or the stores in a folder that is not one.

    Raises:
        StoreError: It is neither.
    """
    folder = Path(path)
    inside = sorted(each.parent for each in folder.glob(f"*/{MANIFEST_NAME}")) if folder.is_dir() else []
    if inside and not (folder / MANIFEST_NAME).exists():
        yield from map(open_store, inside)
    else:
        yield open_store(path)


def _described(
    connection: duckdb.DuckDBPyConnection,
    stores: Sequence[Store],
    named: str | None,
    confidence: float,
    interval: str,
    means: Intervals,
    by: Sequence[str],
) -> Stats:
    own = " and ".join(by)
    dimensions = {**DIMENSIONS, **({own: OWN} if own else {})}
    groups = {
        name: list(_groups(connection, name, dimension, confidence, means))
        for name, dimension in dimensions.items()
    }
    learned = weights(connection)
    (n_tokens,) = one_row(connection, "SELECT sum(n_output_tokens) FROM s")
    listed = [group for name in groups for group in groups[name][:MOST_GROUPS]]
    has_score = any(group.score is not None for group in groups["all"])
    return Stats(
        stores=tuple(store.path for store in stores),
        digests=tuple(store.manifest.digest for store in stores),
        n_episodes=sum(store.manifest.counts.n_episodes for store in stores),
        n_steps=sum(store.manifest.counts.n_steps for store in stores),
        confidence=confidence,
        interval=interval,
        score_name=named if has_score else None,
        groups=tuple(listed),
        n_groups={name: len(groups[name]) for name in groups},
        spreads=tuple(_spreads(connection, named or "score", own)),
        metrics=tuple(
            Measured(
                name=name,
                level=level,
                is_share=is_share,
                value=_estimate(
                    wilson(int(values.value @ values.times), values.n, confidence=confidence)
                    if is_share
                    else means(values)
                ),
            )
            for name, level, is_share, values in metric_values(connection, stores)
        ),
        coverage=coverage(connection),
        duplicates=duplicates(connection),
        weights=learned,
        funnel=funnel([store.manifest for store in stores], learned, n_tokens),
    )


def _groups(
    connection: duckdb.DuckDBPyConnection, by: str, dimension: str, confidence: float, means: Intervals
) -> Iterator[Group]:
    """Yield the groups of a kind, the largest first."""
    counted = connection.execute(
        "SELECT name, count(*) AS n, CAST(sum(n_steps) AS BIGINT), count_if(outcome = 'success'), "
        "count_if(outcome IN ('unknown', 'error')) "
        f"FROM (SELECT {dimension} AS name, n_steps, outcome FROM e) GROUP BY name ORDER BY n DESC, name"
    ).fetchall()
    listed = {name for name, *_ in counted[:MOST_GROUPS]}
    found = {
        field: {
            name: _estimate(means(values), is_count=field != "score")
            for name, values in grouped_values(connection, dimension, measure)
            if name in listed
        }
        for field, measure in _MEASURES.items()
    }
    for name, n_episodes, n_steps, n_success, n_unjudged in counted:
        yield Group(
            by=by,
            name=name,
            n_episodes=n_episodes,
            n_steps=n_steps,
            n_unjudged=n_unjudged,
            success=_estimate(wilson(n_success, n_episodes - n_unjudged, confidence=confidence)),
            **{field: found[field].get(name) for field in _MEASURES},
        )


def _estimate(interval: Interval | None, *, is_count: bool = False) -> Estimate | None:
    """Return the interval as an `Estimate`; the lower bound of a count's mean is at least 0."""
    if interval is None:
        return None
    if is_count and interval.low is not None:
        interval = interval._replace(low=max(0.0, interval.low))
    return Estimate(**interval._asdict())


def _spreads(connection: duckdb.DuckDBPyConnection, score: str, own: str) -> Iterator[Spread]:
    of_own = f"(SELECT count(*) AS n FROM e WHERE {OWN} IS NOT NULL GROUP BY {OWN})"
    asked = {
        **({f"episodes of one {own}": (of_own, "n")} if own else {}),
        f"{score} of an episode": ("e", "score"),
        "steps of an episode": ("e", "n_steps"),
        "input tokens of a step": ("s", "n_input_tokens"),
        "output tokens of a step": ("s", "n_output_tokens"),
        "input tokens of an episode": ("e", "n_input_tokens"),
        "output tokens of an episode": ("e", "n_output_tokens"),
        "weight of a learned step": ("s WHERE reason IS NULL", "loss_weight"),
    }
    for of, (rows, column) in asked.items():
        values = values_of(connection, f"SELECT {column} FROM {rows}")
        (n_rows,) = one_row(connection, f"SELECT count(*) FROM {rows}")
        if values.n > 0 and (column != "loss_weight" or len(values.value) > 1):
            yield _spread(of, values, n_rows - values.n)


def _spread(of: str, values: Values, n_unknown: int) -> Spread:
    reached = np.cumsum(values.times)
    marks = {
        # the rank is rounded up, in integers: 0.07 * 100 is more than 7
        f"p{percent}": float(values.value[np.searchsorted(reached, -(-percent * values.n // 100))])
        for percent in (5, 25, 50, 75, 95, 99)
    }
    edges = _edges(values)
    heights, _ = np.histogram(values.value, bins=edges, weights=values.times)
    return Spread(
        of=of,
        n=values.n,
        n_unknown=n_unknown,
        least=float(values.value[0]),
        most=float(values.value[-1]),
        edges=tuple(edges),
        heights=tuple(int(height) for height in heights),
        **marks,
    )


def _edges(values: Values) -> list[float]:
    """Return round edges of about twenty bars at most; whole numbers if the values are."""
    low, high = float(values.value[0]), float(values.value[-1])
    if low == high:
        return [low - 0.5, low + 0.5]
    rough = (high - low) / _BARS
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    if np.all(values.value == np.floor(values.value)):
        width = max(1.0, width)
    first = math.floor(low / width)
    n_bars = math.floor(high / width) - first + 1
    return [(first + i) * width for i in range(n_bars + 1)]


def funnel(manifests: Sequence[Manifest], weights: Weights, n_tokens: int | None) -> tuple[Stage, ...]:
    """Return the stages of a dataset, oldest first; the last is the learned steps.

    Args:
        manifests: Manifests of the stores, of which the common lineage is used.
        weights: The learned steps.
        n_tokens: Tokens of all answers in the stores; None if they were not counted.
    """
    histories = [manifest.lineage for manifest in manifests]
    stages: list[Stage] = []
    for entry, *others in zip(*histories, strict=False):
        if any(other != entry for other in others):
            break
        if not stages:
            n, n_steps = entry.n_episodes_in, entry.n_steps_in
            stages.append(Stage(name=f"seen by {entry.verb}", n_episodes=n, n_steps=n_steps))
        left = (*entry.left, *entry.masked)
        n, n_steps = entry.n_episodes_out, entry.n_steps_out
        stages.append(Stage(name=entry.verb, n_episodes=n, n_steps=n_steps, left=left))
    n_episodes = sum(manifest.counts.n_episodes for manifest in manifests)
    n_steps = sum(manifest.counts.n_steps for manifest in manifests)
    here = "in this store" if len(manifests) == 1 else f"in these {len(manifests)} stores"
    stages.append(Stage(name=here, n_episodes=n_episodes, n_steps=n_steps, n_tokens=n_tokens))
    stages.append(
        Stage(
            name="learned",
            n_episodes=weights.n_episodes_learned,
            n_steps=weights.n_learned,
            n_tokens=weights.n_tokens,
        )
    )
    return tuple(stages)


def coverage(connection: duckdb.DuckDBPyConnection) -> Coverage:
    """Count distinct tasks, worlds, initial states and actions."""
    n_tasks, n_worlds, n_without_seed, n_states, n_without_state = one_row(
        connection,
        "SELECT count(DISTINCT task_name), count(DISTINCT (env_id, task, seed)) FILTER (seed IS NOT NULL), "
        "count(*) - count(seed), count(DISTINCT (env_id, initial_state_hash)) "
        "FILTER (initial_state_hash IS NOT NULL), count(*) - count(initial_state_hash) FROM e",
    )
    n_without_action, n_invalid, n_unjudged = one_row(
        connection,
        "SELECT count(*) - count(action), count(*) FILTER (NOT action_valid), "
        "count(*) - count(action_valid) FROM s",
    )
    actions = "SELECT kind AS action, count(*) AS n FROM s WHERE kind IS NOT NULL GROUP BY kind"
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
    """Count repeated episodes and answers."""
    n_episodes, n_distinct = one_row(
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
    n_answers, n_different, n_prompts = one_row(
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
    """Describe the steps that training will learn."""
    learned = "s WHERE reason IS NULL"
    not_learned = connection.execute(
        "SELECT reason, count(*) FROM s WHERE reason IS NOT NULL GROUP BY reason ORDER BY 2 DESC, 1"
    ).fetchall()
    n_learned, n_episodes, n_tokens, n_uncounted = one_row(
        connection,
        "SELECT count(*), count(DISTINCT (store, episode_id)), sum(n_output_tokens), "
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
