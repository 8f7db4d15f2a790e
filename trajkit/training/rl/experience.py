"""What an iteration played, as rows that a model can learn, with the advantage of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from trajkit.curation.advantages import Advantages, Attempts, Scheme, advantages
from trajkit.errors import TrainingError
from trajkit.rollouts.record import RETURN_METRIC, Played
from trajkit.schema import Outcome
from trajkit.training.rl.loss import StepRow
from trajkit.training.rl.recipe import RlRecipe

_SCHEMES = {
    "grpo": Scheme.GRPO,
    "gigpo": Scheme.GIGPO,
    "rloo": Scheme.RLOO,
    "reinforce": Scheme.ADVANTAGE,
    "ppo": Scheme.GAE,
    "awr": Scheme.EXPONENTIAL,
}


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


def success_of(played: Sequence[Played]) -> Success:
    """How the episodes went that were played to their end.

    Raises:
        TrainingError: None was.
    """
    whole = [one for one in played if one.fault is None]
    if not whole:
        words = next((one.fault.message for one in played if one.fault), "none was played")
        raise TrainingError(f"no episode was played to its end: {words}")
    returns = np.array([one.metrics[RETURN_METRIC] for one in whole])
    n_steps = sum(len(one.steps) for one in whole)
    return Success(
        len(whole),
        n_steps,
        sum(one.outcome == Outcome.SUCCESS for one in whole) / len(whole),
        float(returns.mean()),
        float(returns.std(ddof=1) / len(whole) ** 0.5) if len(whole) > 1 else 0.0,
        sum(one.n_invalid for one in whole) / max(1, n_steps),
    )


@dataclass
class Experience:
    """The steps of an iteration, in the order of the episodes."""

    rows: list[StepRow]
    """One for each step."""
    attempts: Attempts
    """The same steps and their episodes as columns."""
    left: Counter[str] = field(default_factory=Counter)
    """Episodes that are not learned, by reason."""
    n_strange: int = 0
    """Groups in which the same actions at the same seed had different results."""

    def advantages(self, recipe: RlRecipe, values: Any = None) -> Advantages:
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


def experience_of(
    played: Iterable[Played], recipe: RlRecipe, *, held_out: Collection[str] = ()
) -> Experience:
    """The rows of what was played.

    Args:
        played: Episodes of one iteration.
        recipe: How they are learned.
        held_out: Initial states that are kept for evaluation: episodes in such a world are left out.
    """
    left: Counter[str] = Counter()
    kept: list[Played] = []
    for one in played:
        if one.fault is not None:
            left[f"ended by a fault: {one.fault.kind}"] += 1
        elif one.initial_state_hash in held_out:
            left["their world is one of the held-out seeds"] += 1
        else:
            kept.append(one)
    rows, episode, reward, state, acting = [], [], [], [], []
    groups, states = _Numbers(), _Numbers()
    for number, one in enumerate(kept):
        key = (one.job.task,) if recipe.algorithm == "reinforce" else (one.job.task, one.job.seed)
        for step in one.steps:
            answers = step.choice.answers()
            for answer in answers:
                said = answer.sampled
                assert said is not None  # models of this machine say it
                assert said.prompt_token_ids is not None
                rows.append(
                    StepRow(said.prompt_token_ids, said.completion_token_ids or (), said.logprobs or ())
                )
                episode.append(number)
                is_last = answer is answers[-1]
                acting.append(is_last)
                reward.append(step.result.reward if is_last else 0.0)
                state.append(states.of((*key, step.observation)))
    attempts = Attempts(
        episode=np.array(episode, dtype=np.int64),
        score=np.array([one.metrics[RETURN_METRIC] for one in kept], dtype=np.float64),
        group=np.array(
            [
                groups.of(
                    (one.job.task,) if recipe.algorithm == "reinforce" else (one.job.task, one.job.seed)
                )
                for one in kept
            ],
            dtype=np.int64,
        ),
        reward=np.array(reward, dtype=np.float64),
        state=np.array(state, dtype=np.int64),
        terminated=np.array([one.steps[-1].result.terminated for one in kept], dtype=np.bool_),
        acting=np.array(acting, dtype=np.bool_),
    )
    return Experience(rows, attempts, left, _n_strange(kept))


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
