"""The environments that stored episodes are played in again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trajkit.curation.recorded import Span
from trajkit.curation.replaying import Status, StoredEpisode, Verdict, replayed, unchecked
from trajkit.environments import environment_info, known, typed_environment
from trajkit.environments.base import Environment, EnvironmentInfo
from trajkit.environments.settings import Recorded
from trajkit.errors import RequestError
from trajkit.schema import Manifest

_NOT_OURS = "no environment of trajkit's ({}): name it with --env"


class Worlds(NamedTuple):
    """Which environments the episodes are played in again."""

    env: str | None
    """As the user typed it; None for the one of trajkit's that each episode names."""
    settings: Mapping[str, str]
    """Settings of the environment."""
    max_steps: int | None
    """The rollout's own limit of steps."""


def worlds_of(
    manifest: Manifest, env: str | None, settings: Mapping[str, str] | None, max_steps: int | None
) -> Worlds:
    """What was asked, completed by what the one rollout in the lineage says of itself.

    Args:
        manifest: Of the store.
        env: The environment that the user typed: a lineage may name any code, and none of it is run.
        settings: Its settings, where they were typed.
        max_steps: The limit that was typed.
    """
    rollouts = [entry.arguments for entry in manifest.lineage if entry.verb == "rollout"]
    told = rollouts[0] if len(rollouts) == 1 else {}
    if settings is None:
        found = told.get("env_settings")
        settings = {name: Recorded(value) for name, value in found.items()} if isinstance(found, dict) else {}
    limit = told.get("max_steps")
    if max_steps is None and isinstance(limit, int):
        max_steps = limit
    return Worlds(env, dict(settings), max_steps)


class Player:
    """Replays episodes in one process; its environments are made once per task.

    Args:
        worlds: Which environments.
    """

    def __init__(self, worlds: Worlds) -> None:
        self._worlds = worlds
        self._infos: dict[str, EnvironmentInfo | str] = {}
        self._open: dict[tuple[str, str], Environment] = {}

    def __call__(self, span: Span) -> tuple[list[Verdict], int]:
        """The verdicts on some episodes, and how many steps they have."""
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
            environment.close()  # it may have failed in the middle
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
