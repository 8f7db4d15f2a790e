"""The episodes of an iteration as training rows, with the advantage of each step."""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trajkit.curation.advantages import Advantages, Attempts, Scheme, advantages
from trajkit.errors import TrainingError
from trajkit.formats.tokens.sampled import Sampled
from trajkit.rollouts.records.record import RETURN_METRIC, Played
from trajkit.schema import Outcome
from trajkit.schema.base import JsonObject
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
    """An episode in the form that a model learns from, whoever played it."""

    group: tuple[Hashable, ...]
    """Key of its group: task and seed; from a store environment, task and seed. The seed comes last."""
    score: float
    """Its return."""
    is_success: bool
    """Whether it succeeded."""
    rows: tuple[StepRow, ...]
    """The model calls, in order."""
    rewards: tuple[float, ...]
    """The reward after each call."""
    observations: tuple[str | None, ...]
    """The observation before each call."""
    acting: tuple[bool, ...]
    """Whether each call gave the executed action: the last one of a step does."""
    n_invalid: int = 0
    """Steps whose answer named no action."""


class Lived(NamedTuple):
    """The episodes of one iteration."""

    traces: Sequence[Trace]
    """Episodes to learn from."""
    left: Mapping[str, int]
    """Numbers of the other episodes, by reason."""
    n_strange: int
    """Groups in which the same actions at the same seed had different results."""


class Success(NamedTuple):
    """The results of some episodes."""

    n_episodes: int
    """Episodes that were played to their end."""
    n_steps: int
    """Steps of these episodes."""
    success: float
    """Share of successes."""
    episode_return: float
    """Mean return."""
    return_error: float
    """Standard error of the mean return; 0 for a single episode."""
    invalid: float
    """Share of the steps whose answer named no action."""


def lived_of(played: Sequence[Played], *, held_out: Collection[str] = ()) -> Lived:
    """Select the episodes to learn from: without a fault, with model calls, in worlds that are not held out.

    Args:
        played: Episodes of one iteration.
        held_out: Initial states that are kept for evaluation.

    Raises:
        TrainingError: No episode was played to its end.
    """
    left: Counter[str] = Counter()
    kept: list[Played] = []
    for one in played:
        if one.fault is not None:
            left[f"ended by a fault: {one.fault.kind}"] += 1
        elif not one.answers():
            left["the agent called no model"] += 1
        elif one.initial_state_hash in held_out:
            left["their world is one of the held-out seeds"] += 1
        else:
            kept.append(one)
    if all(one.fault is not None for one in played):
        words = next((one.fault.message for one in played if one.fault), "none was played")
        raise TrainingError(f"no episode was played to its end: {words}")
    return Lived([trace_of(one) for one in kept], dict(left), _n_strange(kept))


def trace_of(played: Played) -> Trace:
    """Return the trace of an episode that was played to its end."""
    calls = [(step, answer) for step in played.steps for answer in step.choice.answers()]
    acting = tuple(answer is step.choice.answers()[-1] for step, answer in calls)
    rewards = list[float]()
    for step in played.steps:
        n_calls = len(step.choice.answers())
        rewards += [0.0] * n_calls
        if rewards:  # the reward of an action without a model call goes to the previous call
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
    assert said is not None  # the players of a training return their samples
    assert said.prompt_token_ids is not None
    assert said.completion_token_ids is not None
    assert said.logprobs is not None
    return StepRow(said.prompt_token_ids, said.completion_token_ids, said.logprobs, said.allowed)


def success_of(traces: Sequence[Trace]) -> Success:
    """Return the results of episodes; all numbers are 0 if there are none."""
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
    """One row per step."""
    attempts: Attempts
    """The same steps and their episodes as columns."""

    def advantages(self, recipe: PlayedRecipe, values: Any = None) -> Advantages:
        """Return the advantage of each step by the recipe's algorithm.

        Args:
            recipe: Algorithm and its settings.
            values: The value head's expected return at each step; None without a value head.
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
    """Return the rows of some episodes.

    Args:
        traces: Episodes of one iteration.
        recipe: Settings of the training.
    """
    numbers, states = _numbers(), _numbers()
    # without groups, an episode is compared with all others of its task
    groups = [trace.group[:-1] if recipe.algorithm == "reinforce" else trace.group for trace in traces]
    attempts = Attempts(
        episode=np.repeat(np.arange(len(traces)), [len(trace.rows) for trace in traces]).astype(np.int64),
        score=np.array([trace.score for trace in traces], dtype=np.float64),
        group=np.array([numbers[group] for group in groups], dtype=np.int64),
        reward=np.array([reward for trace in traces for reward in trace.rewards], dtype=np.float64),
        state=np.array(
            [states[*trace.group, seen] for trace in traces for seen in trace.observations],
            dtype=np.int64,
        ),
        acting=np.array([acts for trace in traces for acts in trace.acting], dtype=np.bool_),
    )
    return Experience([row for trace in traces for row in trace.rows], attempts)


def _numbers() -> defaultdict[Hashable, int]:
    """Return a mapping that numbers new keys from 0."""
    return defaultdict(itertools.count().__next__)


def _n_strange(played: Sequence[Played]) -> int:
    """Count groups whose attempts began differently, or where the same actions had different results."""
    found: dict[tuple[Hashable, ...], Hashable] = {}
    strange: set[tuple[str, int]] = set()
    nodes = _numbers()
    for one in played:
        group = (one.job.task, one.job.seed)
        if found.setdefault(group, one.initial_state_hash) != one.initial_state_hash:
            strange.add(group)
        node = nodes[group]
        for step in one.steps:
            key = (node, step.result.action_executed)
            seen = (step.result.observation, step.result.reward, step.result.terminated)
            if found.setdefault(key, seen) != seen:
                strange.add(group)
                break
            node = nodes[key]
    return len(strange)


_MOST_SILENT = 5
"""Consecutive iterations with nothing to learn from after which the training stops."""


class Watch:
    """Reports what was played, and stops a training run that has nothing to learn from.

    Args:
        recipe: Settings of the training.
        tell: Called with each event.
    """

    def __init__(self, recipe: PlayedRecipe, tell: Callable[[JsonObject], None]) -> None:
        self._recipe, self._tell = recipe, tell
        self._n_silent = 0
        self._began = 0.0
        self.report: dict[str, Any] = {}
        """Report of the current iteration."""

    def begin(self) -> None:
        """Start the clock of an iteration, before it is played."""
        self._began = time.monotonic()

    def played(self, iteration: int, lived: Lived) -> None:
        """Begin the report of an iteration that was played, and report anything unusual.

        Args:
            iteration: From 0.
            lived: The episodes.
        """
        self.report = {
            "iteration": iteration + 1,
            **success_of(lived.traces)._asdict(),
            "n_strange": lived.n_strange,
            "left": dict(lived.left),
            "played_s": time.monotonic() - self._began,
        }
        for reason, number in lived.left.items():
            self.say(f"iteration {iteration + 1}: {number} episodes are not learned: {reason}")
        if lived.n_strange:
            self.say(
                f"iteration {iteration + 1}: in {lived.n_strange} of {self._recipe.n_groups} groups"
                " the environment is not deterministic: the same seed and actions had different results"
            )

    def say(self, message: str) -> None:
        """Send a message to the process that waits for the training."""
        self._tell({"kind": "message", "message": message})

    def check(self, n_learned: int, n_stale: int = 0) -> None:
        """Stop when several iterations in a row had nothing to learn from.

        Args:
            n_learned: Steps that this iteration learns from.
            n_stale: Steps that are left out because they are too stale.

        Raises:
            TrainingError: The latest iterations had nothing to learn from.
        """
        self._n_silent = 0 if n_learned else self._n_silent + 1
        if self._n_silent < _MOST_SILENT:
            return
        others = [f"{n:,} episodes: {reason}" for reason, n in self.report["left"].items()]
        if n_stale:
            others.append(f"{n_stale:,} steps are too stale")
        same = f"all attempts at each seed had the same return ({self.report['episode_return']:.3g})"
        why = f"{'; '.join(others) or same}: there is nothing to learn from"
        raise TrainingError(
            f"in {_MOST_SILENT} iterations up to {self.report['iteration']}, {why}",
            hint="easier tasks, a higher --temperature, more --num-generations, or denser"
            " rewards; run `sft local` first for a model that sometimes succeeds",
        )

    def end(self, learning_rate: float) -> JsonObject:
        """Complete, send and return the report of an iteration."""
        report = self.report
        report["seconds"] = time.monotonic() - self._began
        report["steps_per_s"] = report["n_steps"] / report["seconds"]
        report["learning_rate"] = learning_rate
        self._tell({"kind": "iteration", **report})
        return report
