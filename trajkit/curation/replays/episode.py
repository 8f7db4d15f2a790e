"""Play one stored episode again in its environment, and compare or complete its values."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from trajkit.environments.base import Environment, EnvironmentInfo, Result, Start
from trajkit.environments.guard import RETURN_NAME
from trajkit.errors import MissingExtra, QueryError, TrajkitError
from trajkit.schema import Outcome
from trajkit.schema.success import parse_success

_SHOWN = 60
_LISTED = 5
"""Most listed differences of an episode: after one observation differs, all later ones do."""

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


class Difference(NamedTuple):
    """A stored value that the environment does not reproduce."""

    episode_id: str
    step_index: int | None
    """None for a value of the episode."""
    name: str
    """The column."""
    stored: str
    """The value in the store, shortened."""
    replayed: str
    """The value in the replay."""


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
            differences=tuple(Difference(*each) for each in verdict.differences),
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
            _step(check, step, start, results, environment, max_steps)
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


def _step(
    check: _Check,
    step: StoredStep,
    start: Start,
    results: list[Result],
    environment: Environment,
    max_steps: int | None,
) -> None:
    seen = results[-1].observation if results else start.observation
    check.same(step.step_index, "observation", step.observation, seen)
    result = environment.step(_action_text(step))
    if len(results) + 1 == max_steps and not result.terminated:
        result = result._replace(truncated=True)
    results.append(result)
    for name in ("action_executed", "action_valid", "reward", "terminated", "truncated"):
        check.same(step.step_index, name, getattr(step, name), getattr(result, name))


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
            self._first.append(Difference(self._episode_id, step_index, name, stored, found))

    def verdict(self, n_steps: int, n_same: int) -> Verdict:
        """Return the verdict."""
        if not self.n_differences and not self._n_values:
            return unchecked(self._episode_id, "nothing is stored to compare with")._replace(n_steps=n_steps)
        status = Status.DIFFERENT if self.n_differences else Status.VERIFIED
        return Verdict(
            self._episode_id,
            status,
            None,
            n_steps,
            n_same,
            self._n_values,
            self.n_differences,
            tuple(self._first),
        )


def _bits(value: object) -> object:
    """Return the bits of a number, so that -0.0 differs from 0.0; other values as they are."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return struct.pack("<d", value) if is_number else value


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
