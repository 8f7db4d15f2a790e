"""One stored episode played again in its environment: what is the same, what is not, what it would add."""

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
"""Differences of one episode that are told; after another observation all that follows differs."""

# Python adds up in another way from 3.12 on, and the gateway's database keeps a metric in 32 bits.
_SUM, _METRIC = 1e-12, 2e-7


class Status(StrEnum):
    """What became of an episode that was to be replayed."""

    VERIFIED = "verified"
    DIFFERENT = "different"
    UNCHECKED = "unchecked"


class StoredStep(NamedTuple):
    """What replay needs of a step."""

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
    """What replay needs of an episode."""

    episode_id: str
    task: str
    seed: int
    initial_state_hash: str | None
    total_reward: float | None
    episode_return: float | None
    """The metric of this name."""
    steps: tuple[StoredStep, ...]


class Difference(NamedTuple):
    """A value that the environment does not give."""

    episode_id: str
    step_index: int | None
    """None where it is about the episode."""
    name: str
    """The column."""
    stored: str
    """The value in the store, shortened."""
    replayed: str
    """What the environment gave."""


class Filled(NamedTuple):
    """What the environment says of a step."""

    episode_id: str
    step_index: int
    reward: float
    terminated: bool
    truncated: bool
    action_executed: str
    action_valid: bool


class Verdict(NamedTuple):
    """What came of one episode."""

    episode_id: str
    status: Status
    reason: str | None
    """Why it could not be checked."""
    n_steps: int
    """Steps that acted on the environment."""
    n_steps_verified: int
    """Those of them whose stored values are all the environment's."""
    n_values: int
    """Values that were compared."""
    n_differences: int = 0
    """Values that are not the environment's."""
    differences: tuple[Difference, ...] = ()
    """The first of them."""
    filled: tuple[Filled, ...] = ()
    """Of an episode that is verified."""
    total_reward: float | None = None
    initial_state_hash: str | None = None
    outcome: str | None = None
    """By the environment's own rule; None where the episode is not over."""


def replayed(
    episode: StoredEpisode, environment: Environment, info: EnvironmentInfo, *, max_steps: int | None
) -> Verdict:
    """Play an episode again and compare every stored value with what the environment gives.

    What was said goes to the environment as it did then: the action's text, or the action executed where the
    action is not text. Steps that did not act (other calls of models) are passed over.

    Args:
        episode: What is stored.
        environment: One for its task.
        info: What is known of the environment.
        max_steps: The limit of steps of the rollout itself; None for none.

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
    """An episode that cannot be replayed."""
    return Verdict(episode_id, Status.UNCHECKED, reason, 0, 0, 0)


def _acting(steps: Sequence[StoredStep]) -> list[StoredStep]:
    """Those that the environment saw; where no step says what came of it, those that name an action."""
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
    result = environment.step(_said(step))
    if len(results) + 1 == max_steps and not result.terminated:
        result = result._replace(truncated=True)
    results.append(result)
    for name in ("action_executed", "action_valid", "reward", "terminated", "truncated"):
        check.same(step.step_index, name, getattr(step, name), getattr(result, name))


def _said(step: StoredStep) -> str | None:
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
    """Compares, counts, and remembers the first things that differ."""

    def __init__(self, episode_id: str) -> None:
        self._episode_id = episode_id
        self._n_values = 0
        self._first: list[Difference] = []
        self.n_differences = 0

    def same(self, step_index: int | None, name: str, stored: object, found: object) -> None:
        """Compare to the last bit; what is not stored is not compared."""
        if stored is None:
            return
        self._n_values += 1
        if _bits(stored) != _bits(found):
            self.differs(step_index, name, _shown(stored), _shown(found))

    def close(self, name: str, stored: float | None, found: float, tolerance: float) -> None:
        """Compare a sum, which may be rounded in another way than it was."""
        if stored is None:
            return
        self._n_values += 1
        if not math.isclose(stored, found, rel_tol=tolerance, abs_tol=1e-12):
            self.differs(None, name, _shown(stored), _shown(found))

    def differs(self, step_index: int | None, name: str, stored: str, found: str) -> None:
        """Take note of a difference."""
        self.n_differences += 1
        if len(self._first) < _LISTED:
            self._first.append(Difference(self._episode_id, step_index, name, stored, found))

    def verdict(self, n_steps: int, n_same: int) -> Verdict:
        """What came of it."""
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
    """What to compare: the bits of a number, so that -0.0 is not 0.0; the bytes of a text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return struct.pack("<d", value) if is_number else value


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
