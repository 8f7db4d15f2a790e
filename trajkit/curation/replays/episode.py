"""Read stored episodes, play them again in their environments, and compare or complete their values."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from trajkit.curation.derive import Derivation
from trajkit.curation.statistics.read import score_sql
from trajkit.environments import environment_info, known, typed_environment
from trajkit.environments.base import Environment, EnvironmentInfo, Result
from trajkit.environments.guard import RETURN_NAME
from trajkit.environments.settings import Recorded
from trajkit.errors import MissingExtra, QueryError, RequestError, TrajkitError
from trajkit.schema import Manifest, Model, Outcome
from trajkit.schema.success import parse_success
from trajkit.store.engine import literal

_STEPS_PER_SPAN = 4096
_EPISODES_AT_ONCE = 200
_NOT_OURS = "no environment of trajkit's ({}): name it with --env"
_SHOWN = 60
_LISTED = 5
"""Maximum listed differences per episode: after one observation differs, all later ones do."""

# Python's `sum` rounds differently from 3.12 on, and the gateway's database keeps metrics in 32 bits.
_SUM, _METRIC = 1e-12, 2e-7


class Status(StrEnum):
    """Result of an episode's replay."""

    VERIFIED = "verified"
    DIFFERENT = "different"
    UNCHECKED = "unchecked"


class StoredStep(NamedTuple):
    """Columns of a step that replay reads."""

    step_index: int
    observation: str | None
    action: str | None
    """JSON text."""
    action_executed: str | None
    action_valid: bool | None
    reward: float | None
    terminated: bool | None
    truncated: bool | None


class StoredEpisode(NamedTuple):
    """Columns of an episode that replay reads."""

    episode_id: str
    task: str
    seed: int
    initial_state_hash: str | None
    total_reward: float | None
    episode_return: float | None
    """The metric with this name."""
    steps: tuple[StoredStep, ...]


class Difference(Model):
    """A stored value that the environment does not reproduce."""

    episode_id: str
    """Its episode."""
    step_index: int | None
    """Its step; None for a value of the episode."""
    name: str
    """The column."""
    stored: str
    """The value in the store, shortened."""
    replayed: str
    """The value in the replay."""

    def __str__(self) -> str:
        step = "" if self.step_index is None else f" step {self.step_index}"
        return (
            f"episode {self.episode_id}{step}: {self.name} is {self.stored}; the environment gives "
            f"{self.replayed}"
        )


class Filled(NamedTuple):
    """The environment's values of a step."""

    episode_id: str
    step_index: int
    reward: float
    terminated: bool
    truncated: bool
    action_executed: str
    action_valid: bool


class Verdict(NamedTuple):
    """Result of one episode's replay."""

    episode_id: str
    status: Status
    reason: str | None
    """Why the episode could not be checked."""
    n_steps: int
    """Steps that acted on the environment."""
    n_steps_verified: int
    """Steps whose stored values all equal the replay's."""
    n_values: int
    """Compared values."""
    n_differences: int = 0
    """Values that differ."""
    differences: tuple[Difference, ...] = ()
    """The first differences."""
    filled: tuple[Filled, ...] = ()
    """The steps of a verified episode."""
    total_reward: float | None = None
    initial_state_hash: str | None = None
    outcome: str | None = None
    """By the environment's own rule; None if the episode is not over."""

    @classmethod
    def read(cls, row: Sequence[Any]) -> Verdict:
        """Return a verdict that was written as JSON."""
        verdict = cls(*row)
        return verdict._replace(
            status=Status(verdict.status),
            differences=tuple(map(Difference.model_validate, verdict.differences)),
            filled=tuple(Filled(*each) for each in verdict.filled),
        )


def replayed(
    episode: StoredEpisode, environment: Environment, info: EnvironmentInfo, *, max_steps: int | None
) -> Verdict:
    """Play an episode again and compare every stored value with the environment's.

    The environment gets the same text as then: the action if it is text, else the executed action. Steps that
    did not act (other model calls) are skipped.

    Args:
        episode: The stored episode.
        environment: An environment for its task.
        info: Description of the environment.
        max_steps: Step limit of the rollout; None without one.

    Raises:
        MissingExtra: The environment's package is not installed.
    """
    acting = _acting(episode.steps)
    check = _Check(episode.episode_id)
    results: list[Result] = []
    n_same = 0
    try:
        start = environment.reset(episode.seed)
        check.same(None, "initial_state_hash", episode.initial_state_hash, start.initial_state_hash)
        for step in acting:
            n_before = check.n_differences
            seen = results[-1].observation if results else start.observation
            check.same(step.step_index, "observation", step.observation, seen)
            result = environment.step(_action_text(step))
            if len(results) + 1 == max_steps and not result.terminated:
                result = result._replace(truncated=True)
            results.append(result)
            for name in ("action_executed", "action_valid", "reward", "terminated", "truncated"):
                check.same(step.step_index, name, getattr(step, name), getattr(result, name))
            n_same += check.n_differences == n_before
        scores = environment.statistics()
    except MissingExtra:
        raise
    except TrajkitError as error:
        step_index = acting[len(results)].step_index if len(results) < len(acting) else None
        check.differs(step_index, "the episode", "recorded", f"an error: {error.message}")
        return check.verdict(len(acting), n_same)
    total = sum(result.reward for result in results)
    check.close("total_reward", episode.total_reward, total, _SUM)
    check.close(RETURN_NAME, episode.episode_return, total, _METRIC)
    verdict = check.verdict(len(acting), n_same)
    if verdict.status != Status.VERIFIED:
        return verdict
    return verdict._replace(
        filled=tuple(
            Filled(episode.episode_id, step.step_index, *result[1:])
            for step, result in zip(acting, results, strict=True)
        ),
        total_reward=total,
        initial_state_hash=start.initial_state_hash,
        outcome=_outcome(results, scores, total, info),
    )


def unchecked(episode_id: str, reason: str) -> Verdict:
    """Return the verdict of an episode that cannot be replayed."""
    return Verdict(episode_id, Status.UNCHECKED, reason, 0, 0, 0)


def _acting(steps: Sequence[StoredStep]) -> list[StoredStep]:
    """Return the steps with an executed action or a reward; if none has one, the steps with an action."""
    acting = [step for step in steps if step.action_executed is not None or step.reward is not None]
    return acting or [step for step in steps if step.action not in (None, "null")]


def _action_text(step: StoredStep) -> str | None:
    action: Any = None if step.action is None else json.loads(step.action)
    if isinstance(action, str):
        return action
    return None if step.action_valid is False else step.action_executed


def _outcome(
    results: Sequence[Result], scores: Mapping[str, float], total: float, info: EnvironmentInfo
) -> str | None:
    if not results or not (results[-1].terminated or results[-1].truncated):
        return None
    try:
        is_success = parse_success(info.success).holds({**scores, RETURN_NAME: total})
    except QueryError:
        return None
    if is_success:
        return Outcome.SUCCESS.value
    return (Outcome.TRUNCATED if results[-1].truncated else Outcome.FAILURE).value


class _Check:
    """Compares values, counts them, and keeps the first differences."""

    def __init__(self, episode_id: str) -> None:
        self._episode_id = episode_id
        self._n_values = 0
        self._first: list[Difference] = []
        self.n_differences = 0

    def same(self, step_index: int | None, name: str, stored: object, found: object) -> None:
        """Compare to the last bit; an unknown stored value is skipped."""
        if stored is None:
            return
        self._n_values += 1
        if _bits(stored) != _bits(found):
            self.differs(step_index, name, _shown(stored), _shown(found))

    def close(self, name: str, stored: float | None, found: float, tolerance: float) -> None:
        """Compare a sum within a rounding tolerance."""
        if stored is None:
            return
        self._n_values += 1
        if not math.isclose(stored, found, rel_tol=tolerance, abs_tol=1e-12):
            self.differs(None, name, _shown(stored), _shown(found))

    def differs(self, step_index: int | None, name: str, stored: str, found: str) -> None:
        """Count a difference."""
        self.n_differences += 1
        if len(self._first) < _LISTED:
            self._first.append(
                Difference(
                    episode_id=self._episode_id,
                    step_index=step_index,
                    name=name,
                    stored=stored,
                    replayed=found,
                )
            )

    def verdict(self, n_steps: int, n_same: int) -> Verdict:
        """Return the verdict."""
        if not self.n_differences and not self._n_values:
            return unchecked(self._episode_id, "nothing is stored to compare with")._replace(n_steps=n_steps)
        status = Status.DIFFERENT if self.n_differences else Status.VERIFIED
        counts = (n_steps, n_same, self._n_values, self.n_differences)
        return Verdict(self._episode_id, status, None, *counts, tuple(self._first))


def _bits(value: object) -> object:
    """Return the bits of a number, so that -0.0 differs from 0.0; other values as they are."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return struct.pack("<d", value) if is_number else value


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Span(NamedTuple):
    """Episodes that are neighbours by id."""

    episodes: list[tuple[str | None, StoredEpisode | Verdict]]
    """Each with its environment; an episode that cannot be replayed is a verdict."""
    n_steps: int
    """Their number of steps."""


def stored(derivation: Derivation, is_named: bool, where: str = "true") -> Iterator[Span]:
    """Yield the episodes by id, some thousand steps at a time.

    Args:
        derivation: The store.
        is_named: Whether an environment was named, so that an episode need not name one.
        where: SQL condition on `episode_id` of the episodes to read.
    """
    run = derivation.connection.cursor().execute  # the derivation's own connection takes the verdicts
    score = score_sql(derivation.store, RETURN_NAME)
    names = ", ".join("CAST(action AS VARCHAR)" if name == "action" else name for name in StoredStep._fields)
    spans = run(
        "SELECT min(episode_id), max(episode_id) FROM (SELECT episode_id, (sum(n_steps + 1) OVER "
        f"(ORDER BY episode_id) - 1) // {_STEPS_PER_SPAN} AS span FROM episodes WHERE {where}) "
        "GROUP BY span ORDER BY 1"
    ).fetchall()
    for ids in spans:
        mine = f"WHERE {where} AND episode_id BETWEEN ? AND ? ORDER BY episode_id"
        steps: dict[str, list[StoredStep]] = {}
        for episode_id, *values in run(
            f"SELECT episode_id, {names} FROM steps {mine}, step_index", ids
        ).fetchall():
            steps.setdefault(episode_id, []).append(StoredStep(*values))
        episodes = run(
            "SELECT episode_id, env_id, task, seed, initial_state_hash, total_reward, "
            f"{score} FROM episodes {mine}",
            ids,
        ).fetchall()
        yield Span(
            [_episode(row, steps.get(row[0], ()), is_named) for row in episodes],
            sum(map(len, steps.values())),
        )


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


class Witness:
    """Replays episodes of preference pairs on demand, each once, and keeps the verdicts.

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
        self._derivation, self._is_named = derivation, env is not None
        self._player = Player(worlds)
        self._verdicts: dict[str, Verdict] = {}

    def differing(self, episode_ids: Iterable[str]) -> set[str]:
        """Return the episodes that their environment does not reproduce."""
        asked = set(episode_ids)
        new = sorted(asked - self._verdicts.keys())
        for begin in range(0, len(new), _EPISODES_AT_ONCE):
            ids = ", ".join(map(literal, new[begin : begin + _EPISODES_AT_ONCE]))
            for span in stored(self._derivation, self._is_named, f"episode_id IN ({ids})"):
                self._verdicts.update({each.episode_id: each for each in self._player(span)[0]})
        return {each for each in asked if self._verdicts[each].status == Status.DIFFERENT}

    def saw(self, *episode_ids: str) -> bool | None:
        """Return True if all of them are verified; None if one could not be replayed."""
        statuses = {self._verdicts[each].status for each in episode_ids}
        return True if statuses == {Status.VERIFIED} else None

    def unchecked(self) -> Counter[str]:
        """Count the episodes that could not be replayed, by reason."""
        return Counter(verdict.reason for verdict in self._verdicts.values() if verdict.reason is not None)
