"""Read the columns that a replay needs, some thousand steps at a time, and create its environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from trajkit.curation.derive import Derivation
from trajkit.curation.replays.episode import Status, StoredEpisode, StoredStep, Verdict, replayed, unchecked
from trajkit.environments import environment_info, known, typed_environment
from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.environments.guard import RETURN_NAME
from trajkit.environments.settings import Recorded
from trajkit.errors import RequestError
from trajkit.schema import Manifest
from trajkit.store.engine import literal
from trajkit.store.layout import quoted

_STEPS_PER_SPAN = 4096
_NOT_OURS = "no environment of trajkit's ({}): name it with --env"


class Span(NamedTuple):
    """Episodes that are neighbours by id."""

    episodes: list[tuple[str | None, StoredEpisode | Verdict]]
    """Each with its environment; an episode that cannot be replayed is a verdict."""
    n_steps: int
    """Their number of steps."""


def stored(derivation: Derivation, is_named: bool, ids: tuple[str, str] | None = None) -> Iterator[Span]:
    """Yield the episodes by id, some thousand steps at a time.

    Args:
        derivation: The store.
        is_named: Whether an environment was named, so that an episode need not name one.
        ids: The first and the last id to read; None for all.
    """
    reading = derivation.connection.cursor()  # the derivation's own connection meanwhile takes the verdicts
    has_return = any(
        m.name == RETURN_NAME and m.level == "episode" for m in derivation.store.manifest.metrics
    )
    score = f"CAST(metrics.{quoted(RETURN_NAME)} AS DOUBLE)" if has_return else "CAST(NULL AS DOUBLE)"
    chosen = "" if ids is None else f"WHERE episode_id BETWEEN {literal(ids[0])} AND {literal(ids[1])}"
    spans = reading.execute(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, (sum(n_steps + 1) OVER "
        f"(ORDER BY episode_id) - 1) // {_STEPS_PER_SPAN} AS span FROM episodes {chosen}) "
        "GROUP BY span ORDER BY 1"
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
    """Make an episode with its environment, or the verdict that it cannot be replayed."""
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


class Worlds(NamedTuple):
    """The environments to replay in."""

    env: str | None
    """The environment that the user named; None for the one that each episode names, if it is trajkit's."""
    settings: Mapping[str, str]
    """Settings of the environment."""
    max_steps: int | None
    """Step limit of the rollout."""


def worlds_of(
    manifest: Manifest, env: str | None, settings: Mapping[str, str] | None, max_steps: int | None
) -> Worlds:
    """Complete the user's options from the lineage, if it has exactly one rollout.

    Args:
        manifest: The store's manifest.
        env: The environment that the user named. One that only the lineage names is not run: it may be any
            code.
        settings: Its settings, if given.
        max_steps: The step limit, if given.
    """
    rollouts = [entry.arguments for entry in manifest.lineage if entry.verb == "rollout"]
    arguments = rollouts[0] if len(rollouts) == 1 else {}
    if settings is None:
        found = arguments.get("env_settings")
        settings = {name: Recorded(value) for name, value in found.items()} if isinstance(found, dict) else {}
    limit = arguments.get("max_steps")
    if max_steps is None and isinstance(limit, int):
        max_steps = limit
    return Worlds(env, dict(settings), max_steps)


class Player:
    """Replays episodes in one process, with one environment per task."""

    def __init__(self, worlds: Worlds) -> None:
        self._worlds = worlds
        self._infos: dict[str, EnvironmentInfo | str] = {}
        self._open: dict[tuple[str, str], Environment] = {}

    def __call__(self, span: Span) -> tuple[list[Verdict], int]:
        """Return the verdicts on a span's episodes, and its number of steps."""
        verdicts = [
            each if isinstance(each, Verdict) else self._one(env_id, each) for env_id, each in span.episodes
        ]
        return verdicts, span.n_steps

    def _one(self, env_id: str | None, episode: StoredEpisode) -> Verdict:
        name = self._worlds.env or env_id or ""
        info = self._info(name)
        if isinstance(info, str):
            return unchecked(episode.episode_id, info)
        if self._worlds.env is not None and env_id not in (None, info.env_id, name):
            return unchecked(episode.episode_id, f"of another environment: {env_id}")
        if episode.task not in info.tasks:
            return unchecked(episode.episode_id, f"{info.env_id} has no task {episode.task!r}")
        key = (name, episode.task)
        environment = self._open.pop(key, None) or info.make(episode.task)
        verdict = replayed(episode, environment, info, max_steps=self._worlds.max_steps)
        if verdict.status == Status.DIFFERENT:
            environment.close()  # it may have failed during a step
        else:
            self._open[key] = environment
        return verdict

    def _info(self, name: str) -> EnvironmentInfo | str:
        if name not in self._infos:
            try:
                find = environment_info if self._worlds.env is None else typed_environment
                self._infos[name] = find(name, self._worlds.settings)
            except RequestError as error:
                if self._worlds.env is not None:
                    raise
                self._infos[name] = error.message if name in known() else _NOT_OURS.format(name)
        return self._infos[name]
