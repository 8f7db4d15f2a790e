"""What an iteration played, as rows that a model can learn, with the advantage of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trajkit.curation.advantages import Advantages, Attempts, Scheme, advantages
from trajkit.errors import TrainingError
from trajkit.formats.tokens.sampled import Sampled
from trajkit.rollouts.records.record import RETURN_METRIC, Played
from trajkit.schema import Outcome
from trajkit.training.rl.loss import StepRow
from trajkit.training.rl.recipe import PlayedRecipe

_SCHEMES = {
    "grpo": Scheme.GRPO,
    "gigpo": Scheme.GIGPO,
    "rloo": Scheme.RLOO,
    "reinforce": Scheme.ADVANTAGE,
    "ppo": Scheme.GAE,
    "awr": Scheme.EXPONENTIAL,
}


class Trace(NamedTuple):
    """An episode as a model learns it, from any player."""

    group: tuple[Hashable, ...]
    """What its attempts share: task and seed, of a store environment, task and seed. The seed is the last."""
    score: float
    """Its return."""
    is_success: bool
    """Whether it succeeded."""
    rows: tuple[StepRow, ...]
    """The calls of models, in order."""
    rewards: tuple[float, ...]
    """The reward after each of them."""
    observations: tuple[str | None, ...]
    """What was seen before each of them."""
    acting: tuple[bool, ...]
    """Whether each carried out an action: of several calls in a step the last one."""
    n_invalid: int = 0
    """Steps whose answer named no action."""


class Lived(NamedTuple):
    """The episodes of one iteration."""

    traces: Sequence[Trace]
    """Those that may be learned."""
    left: Mapping[str, int]
    """The others, by reason."""
    n_strange: int
    """Groups in which the same actions at the same seed had different results."""


class Success(NamedTuple):
    """How some episodes went."""

    n_episodes: int
    """Episodes that were played to their end."""
    n_steps: int
    """Their steps."""
    success: float
    """Share of successes."""
    episode_return: float
    """Mean return."""
    return_error: float
    """Standard error of the mean return; 0 for a single episode."""
    invalid: float
    """Share of the steps whose answer named no action."""


def lived_of(played: Sequence[Played], *, held_out: Collection[str] = ()) -> Lived:
    """The episodes that were played, without those that ended by a fault or are kept for evaluation.

    Args:
        played: Episodes of one iteration.
        held_out: Initial states that are kept for evaluation.

    Raises:
        TrainingError: None was played to its end.
    """
    left: Counter[str] = Counter()
    kept: list[Played] = []
    for one in played:
        if one.fault is not None:
            left[f"ended by a fault: {one.fault.kind}"] += 1
        elif not one.answers():
            left["the agent asked no model"] += 1
        elif one.initial_state_hash in held_out:
            left["their world is one of the held-out seeds"] += 1
        else:
            kept.append(one)
    if all(one.fault is not None for one in played):
        words = next((one.fault.message for one in played if one.fault), "none was played")
        raise TrainingError(f"no episode was played to its end: {words}")
    return Lived([trace_of(one) for one in kept], dict(left), _n_strange(kept))


def trace_of(played: Played) -> Trace:
    """An episode that a model of this machine played to its end."""
    calls = [(step, answer) for step in played.steps for answer in step.choice.answers()]
    acting = tuple(answer is step.choice.answers()[-1] for step, answer in calls)
    rewards = list[float]()
    for step in played.steps:
        n_calls = len(step.choice.answers())
        rewards += [0.0] * n_calls
        if rewards:  # of an action that no model chose it is the last call's before
            rewards[-1] += step.result.reward
    return Trace(
        group=(played.job.task, played.job.seed),
        score=played.metrics[RETURN_METRIC],
        is_success=played.outcome == Outcome.SUCCESS,
        rows=tuple(_row(answer.sampled) for _, answer in calls),
        rewards=tuple(rewards),
        observations=tuple(step.observation for step, _ in calls),
        acting=acting,
        n_invalid=played.n_invalid,
    )


def _row(said: Sampled | None) -> StepRow:
    assert said is not None  # models of this machine say it
    assert said.prompt_token_ids is not None
    assert said.completion_token_ids is not None
    assert said.logprobs is not None
    return StepRow(said.prompt_token_ids, said.completion_token_ids, said.logprobs, said.allowed)


def success_of(traces: Sequence[Trace]) -> Success:
    """How episodes went; all numbers are 0 where there is none."""
    n, n_steps = len(traces), sum(sum(trace.acting) for trace in traces)
    returns = np.array([trace.score for trace in traces] or [0.0])
    return Success(
        n,
        n_steps,
        sum(trace.is_success for trace in traces) / max(1, n),
        float(returns.mean()),
        float(returns.std(ddof=1) / n**0.5) if n > 1 else 0.0,
        sum(trace.n_invalid for trace in traces) / max(1, n_steps),
    )


@dataclass
class Experience:
    """The steps of an iteration, in the order of the episodes."""

    rows: list[StepRow]
    """One for each step."""
    attempts: Attempts
    """The same steps and their episodes as columns."""

    def advantages(self, recipe: PlayedRecipe, values: Any = None) -> Advantages:
        """The advantage of each step by the recipe's algorithm.

        Args:
            recipe: How.
            values: What a value head expects at each step; None without one.
        """
        attempts = self.attempts if values is None else replace(self.attempts, value=values)
        found = advantages(
            _SCHEMES[recipe.algorithm],
            attempts,
            gamma=recipe.gamma,
            lam=recipe.lam,
            by_deviation=recipe.scale_rewards,
            temperature=recipe.awr_temperature,
        )
        if recipe.baseline == "attempts" or recipe.algorithm in ("ppo", "awr"):
            return found
        group = attempts.group[attempts.episode]
        means = np.bincount(group, weights=found.values) / np.maximum(1, np.bincount(group))
        return replace(found, values=np.where(found.left_out, 0.0, found.values - means[group]))


def experience_of(traces: Sequence[Trace], recipe: PlayedRecipe) -> Experience:
    """The rows of some episodes.

    Args:
        traces: Episodes of one iteration.
        recipe: How they are learned.
    """
    numbers, states = _Numbers(), _Numbers()
    # without groups an episode is compared with all others of its task
    groups = [trace.group[:-1] if recipe.algorithm == "reinforce" else trace.group for trace in traces]
    attempts = Attempts(
        episode=np.repeat(np.arange(len(traces)), [len(trace.rows) for trace in traces]).astype(np.int64),
        score=np.array([trace.score for trace in traces], dtype=np.float64),
        group=np.array([numbers.of(group) for group in groups], dtype=np.int64),
        reward=np.array([reward for trace in traces for reward in trace.rewards], dtype=np.float64),
        state=np.array(
            [states.of((*trace.group, seen)) for trace in traces for seen in trace.observations],
            dtype=np.int64,
        ),
        acting=np.array([acts for trace in traces for acts in trace.acting], dtype=np.bool_),
    )
    return Experience([row for trace in traces for row in trace.rows], attempts)


class _Numbers:
    """Equal keys as equal numbers from 0."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _n_strange(played: Sequence[Played]) -> int:
    """Groups whose attempts began differently, or in which the same actions led to different results."""
    found: dict[tuple[Hashable, ...], Hashable] = {}
    strange: set[tuple[str, int]] = set()
    nodes = _Numbers()
    for one in played:
        group = (one.job.task, one.job.seed)
        if found.setdefault(group, one.initial_state_hash) != one.initial_state_hash:
            strange.add(group)
        node = nodes.of(group)
        for step in one.steps:
            key = (node, step.result.action_executed)
            seen = (step.result.observation, step.result.reward, step.result.terminated)
            if found.setdefault(key, seen) != seen:
                strange.add(group)
                break
            node = nodes.of(key)
    return len(strange)
