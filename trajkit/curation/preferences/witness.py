"""Verify episodes of pairs by replaying each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from trajkit.curation.derive import Derivation
from trajkit.curation.replays.episode import Status, StoredEpisode, StoredStep, Verdict, unchecked
from trajkit.curation.replays.recorded import Player, Span, worlds_of
from trajkit.environments import typed_environment
from trajkit.environments.guard import RETURN_NAME
from trajkit.store.layout import quoted

_EPISODES_AT_ONCE = 200


class Witness:
    """Replays episodes on demand, and keeps the verdicts.

    Args:
        derivation: The store.
        env: The environment to replay in; None for the one that each episode names, if it is trajkit's. Code
            that only the data names is not run.

    Raises:
        RequestError: The environment does not exist.
        MissingExtra: Its package is not installed.
    """

    def __init__(self, derivation: Derivation, env: str | None) -> None:
        worlds = worlds_of(derivation.store.manifest, env, None, None)
        if env is not None:
            typed_environment(env, worlds.settings)  # raises for an unknown name before any work
        self._derivation = derivation
        self._env = env
        self._player = Player(worlds)
        self._verdicts: dict[str, Verdict] = {}

    def differing(self, episode_ids: Iterable[str]) -> set[str]:
        """Return the episodes that their environment does not reproduce."""
        asked = set(episode_ids)
        new = sorted(asked - self._verdicts.keys())
        for begin in range(0, len(new), _EPISODES_AT_ONCE):
            episodes = list(self._stored(new[begin : begin + _EPISODES_AT_ONCE]))
            verdicts, _ = self._player(Span(episodes, 0))
            self._verdicts.update({verdict.episode_id: verdict for verdict in verdicts})
        return {each for each in asked if self._verdicts[each].status == Status.DIFFERENT}

    def saw(self, *episode_ids: str) -> bool | None:
        """Return True if all of them are verified; None if one could not be replayed."""
        statuses = {self._verdicts[each].status for each in episode_ids}
        return True if statuses == {Status.VERIFIED} else None

    def unchecked(self) -> Counter[str]:
        """Count the episodes that could not be replayed, by reason."""
        return Counter(
            verdict.reason or "unknown"
            for verdict in self._verdicts.values()
            if verdict.status == Status.UNCHECKED
        )

    def _stored(self, episode_ids: list[str]) -> Iterator[tuple[str | None, StoredEpisode | Verdict]]:
        run = self._derivation.connection.execute
        marks = ", ".join("?" for _ in episode_ids)
        names = ", ".join(
            "CAST(action AS VARCHAR)" if name == "action" else name for name in StoredStep._fields
        )
        steps: dict[str, list[StoredStep]] = {}
        for episode_id, *values in run(
            f"SELECT episode_id, {names} FROM steps WHERE episode_id IN ({marks}) "
            "ORDER BY episode_id, step_index",
            episode_ids,
        ).fetchall():
            steps.setdefault(episode_id, []).append(StoredStep(*values))
        rows = run(
            "SELECT episode_id, env_id, task, seed, initial_state_hash, total_reward, "
            f"{self._return_sql()} FROM episodes WHERE episode_id IN ({marks}) ORDER BY episode_id",
            episode_ids,
        ).fetchall()
        for episode_id, env_id, task, seed, initial_state_hash, total_reward, episode_return in rows:
            named = self._env or env_id
            if named is None or task is None or seed is None:
                missing = "environment" if named is None else "seed" if seed is None else "task"
                yield None, unchecked(episode_id, f"no {missing}")
                continue
            yield (
                env_id,
                StoredEpisode(
                    episode_id=episode_id,
                    task=task,
                    seed=seed,
                    initial_state_hash=initial_state_hash,
                    total_reward=total_reward,
                    episode_return=episode_return,
                    steps=tuple(steps.get(episode_id, ())),
                ),
            )

    def _return_sql(self) -> str:
        metrics = self._derivation.store.manifest.metrics
        if any(metric.name == RETURN_NAME and metric.level == "episode" for metric in metrics):
            return f"CAST(metrics.{quoted(RETURN_NAME)} AS DOUBLE)"
        return "CAST(NULL AS DOUBLE)"
