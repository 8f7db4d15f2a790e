"""Compute the advantage of each step within its group, from columns of episodes and steps.

This module reads no store and calls no model. `trajkit weight` passes the columns of a store, reinforcement
learning those of the episodes that it just played.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trajkit.errors import DataError

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Scheme(StrEnum):
    """Formulas for the weight of a step.

    R is the score of an episode; mean(R) and std(R) are those of its group, the attempts at one start. std is
    the sample deviation, with n - 1. r_t is the reward of step t, and its return is
    G_t = r_t + gamma r_(t+1) + gamma^2 r_(t+2) + ….
    """

    UNIFORM = "uniform"
    """w = 1: behaviour cloning (D. Pomerleau, ALVINN, NeurIPS 1988)."""
    RETURN = "return"
    """w = R: reward-weighted regression (J. Peters and S. Schaal, "Reinforcement learning by reward-weighted
    regression for operational space control", ICML 2007). It is meant for scores from 0; a negative score
    gives a negative weight."""
    RETURN_TO_GO = "return-to-go"
    """w_t = G_t: only the rewards from the step on count (R. Williams, "Simple statistical
    gradient-following algorithms for connectionist reinforcement learning", Machine Learning 8, 1992;
    R. Sutton et al., "Policy gradient methods for reinforcement learning with function approximation",
    NeurIPS 1999)."""
    ADVANTAGE = "advantage"
    """w = R - mean(R): REINFORCE with a baseline (Williams 1992). The baseline is the mean of the group."""
    RLOO = "rloo"
    """w_i = R_i - mean(R_j, j ≠ i): REINFORCE where the baseline of an attempt is the mean of the others
    (A. Ahmadian et al., "Back to basics", arXiv:2402.14740, section 3). It equals R - mean(R) times
    n / (n - 1), for n attempts."""
    GRPO = "grpo"
    """w = (R - mean(R)) / std(R) (Z. Shao et al., DeepSeekMath, arXiv:2402.03300, section 4.1). Without the
    division it is `advantage`: dividing favours starts where nearly all attempts succeed or nearly all fail
    (Z. Liu et al., "Dr. GRPO", arXiv:2503.20783)."""
    GIGPO = "gigpo"
    """w_t = (R - mean(R)) / std(R) + omega (G_t - mean(G)) / std(G), where the second mean and deviation are
    those of all steps of the group in the same state (L. Feng et al., "Group-in-group policy optimization",
    arXiv:2505.10978). Both divisions may be left out together.

    With `history` K above 0 the second term is a mean over k = 0 … K. Term k compares a step with the steps
    whose state and k states before are the same, and its weight is k + 1. A term with nothing to compare (a
    step alone, equal returns, fewer than k steps before) has no weight. This is after HGPO (S. He et al.,
    arXiv:2602.22817, with its alpha 1) and differs from it: the first term stays, as in GiGPO."""
    GAE = "gae"
    """w_t = d_t + gamma lambda d_(t+1) + (gamma lambda)^2 d_(t+2) + …, where d_t = r_t + gamma V_(t+1) - V_t
    and V_t is a critic's value of the state before step t: generalized advantage estimation (J. Schulman et
    al., arXiv:1506.02438, equation 16). After the last step V is 0; in a truncated episode it is the critic's
    value of the last observed state."""
    EXPONENTIAL = "exponential"
    """w = min(exp((R - mean(R)) / temperature), clip): advantage-weighted regression (X. Peng et al., "AWR",
    arXiv:1910.00177, equation 7 and section 5, where clip is 20). The value function is the group's mean."""

    @property
    def needs_score(self) -> bool:
        """Whether the scheme uses the score of an episode."""
        return self not in (Scheme.UNIFORM, Scheme.RETURN_TO_GO, Scheme.GAE)

    @property
    def needs_rewards(self) -> bool:
        """Whether the scheme uses the reward of each step."""
        return self in (Scheme.RETURN_TO_GO, Scheme.GIGPO, Scheme.GAE)

    @property
    def compares(self) -> bool:
        """Whether the scheme compares an episode with others of its group."""
        return self.needs_score and self != Scheme.RETURN


_ROUNDING = 1e-12
"""Numbers whose relative difference is smaller count as equal before a division by their deviation. Equal
rewards in another order can have sums that differ in the last bit, and the division would magnify that."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Attempts:
    """Episodes and their steps as columns. The steps of an episode are together and in order.

    Raises:
        DataError: Columns differ in length, or the steps are not in order.
    """

    episode: Indices
    """Per step: index of its episode, from 0 to n_episodes - 1, ascending."""
    score: Numbers
    """Per episode: R; NaN if the scheme does not use it."""
    group: Indices
    """Per episode: attempts at the same start have equal numbers."""
    reward: Numbers | None = None
    """Per step; NaN if unknown."""
    state: Indices | None = None
    """Per step: within a group, equal numbers are the same state."""
    value: Numbers | None = None
    """Per step: the critic's value of the state before it."""
    terminated: Flags | None = None
    """Per episode: whether the task ended, so that no more reward was possible. None if all did."""
    last_value: Numbers | None = None
    """Per episode: the critic's value of the last observed state, used where `terminated` is false. If None,
    such an episode counts as one without further reward."""
    acting: Flags | None = None
    """Per step: false for a model call that executed no action. Such a step has the value of the next action
    in its episode, and 0 after the last. None if all steps act."""

    def __post_init__(self) -> None:
        for name in ("reward", "state", "value", "acting"):
            self._refuse_other_length(name, len(self.episode), "steps")
        for name in ("group", "terminated", "last_value"):
            self._refuse_other_length(name, len(self.score), "episodes")
        if len(self.episode) and not (
            self.episode[0] >= 0 and self.episode[-1] < len(self.score) and (np.diff(self.episode) >= 0).all()
        ):
            raise DataError(
                f"steps are not ordered by their episode, a number from 0 to {len(self.score) - 1}"
            )

    def _refuse_other_length(self, name: str, n: int, of: str) -> None:
        column = getattr(self, name)
        if column is not None and len(column) != n:
            raise DataError(f"{name} has {len(column):,} values for {n:,} {of}")


@dataclass(frozen=True, eq=False)
class Advantages:
    """A weight for each step, and counts of the groups without differences."""

    values: Numbers
    """Per step; 0 where it is left out."""
    left_out: Flags
    """Per step: whether its group has no difference to learn from: one attempt, or equal scores. `gigpo` also
    requires that the steps in the same state do not differ. `exponential` leaves no step out: the weight of
    such a step is 1."""
    n_groups: int = 0
    """Number of groups; 0 for a scheme that does not compare, as the next two."""
    n_single: int = 0
    """Groups of one attempt."""
    n_equal: int = 0
    """Groups of several attempts with equal scores."""
    n_matched: int = 0
    """For `gigpo`: steps whose state occurs in another step of their group."""


def advantages(
    scheme: Scheme | str,
    attempts: Attempts,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    omega: float = 1.0,
    by_deviation: bool = True,
    history: int = 0,
    temperature: float = 1.0,
    clip: float = 20.0,
) -> Advantages:
    """Return the weight of each step under a scheme; `Scheme` has the formulas.

    Means are rounded once, and no value depends on the order of episodes.

    Args:
        scheme: The scheme or its name.
        attempts: The episodes.
        gamma: Discount of `return-to-go`, `gigpo` and `gae`, from 0 to 1.
        lam: Lambda of `gae`, from 0 (one step ahead) to 1 (the whole return).
        omega: Weight of the second term of `gigpo`.
        by_deviation: Whether `grpo` and `gigpo` divide by the deviation.
        history: Number of earlier states that `gigpo` also compares, from 0.
        temperature: Temperature of `exponential`, above 0.
        clip: The largest weight of `exponential`, above 0.

    Raises:
        DataError: The scheme needs a column that is missing or has gaps.
    """
    scheme = Scheme(scheme)
    episode, score = attempts.episode, attempts.score
    if scheme.needs_score and np.isnan(score).any():
        raise DataError(f"episode {np.isnan(score).argmax()} has no score, and the scheme {scheme} needs it")
    # an overflow becomes infinite or NaN; the caller refuses it
    with np.errstate(over="ignore", invalid="ignore"):
        if not scheme.compares:
            values = np.ones(len(episode))
            if scheme == Scheme.RETURN:
                values = score[episode]
            elif scheme == Scheme.RETURN_TO_GO:
                values = _returns(scheme, attempts, gamma)
            elif scheme == Scheme.GAE:
                values = _generalized(attempts, gamma, lam)
            return Advantages(values + 0.0, np.zeros(len(episode), dtype=np.bool_))  # + 0.0: no -0.0
        rounding = _ROUNDING if by_deviation and scheme in (Scheme.GRPO, Scheme.GIGPO) else 0.0
        among = compare(score, attempts.group, rounding=rounding)
        n_matched, is_silent = 0, among.is_silent[among.group]
        if scheme == Scheme.EXPONENTIAL:
            power = np.minimum(among.difference / temperature, math.log(clip))
            # not numpy's exponential, whose last bit depends on the processor
            risen = np.array([math.exp(each) for each in power.tolist()], dtype=np.float64)
            of_episode = np.where(power == math.log(clip), clip, risen)
            is_silent = np.zeros_like(is_silent)
        elif scheme == Scheme.ADVANTAGE:
            of_episode = among.difference
        elif scheme == Scheme.RLOO:
            of_episode = among.difference * (among.n / np.maximum(among.n - 1, 1))[among.group]
        else:
            of_episode = among.relative(by_deviation)
        values, left_out = of_episode[episode], is_silent[episode]
        if scheme == Scheme.GIGPO:
            by_state, is_alone, n_matched = _by_state(attempts, gamma, by_deviation, history)
            values, left_out = values + omega * by_state, left_out & is_alone
    return Advantages(
        values + 0.0,
        left_out,
        n_groups=len(among.n),
        n_single=int((among.n == 1).sum()),
        n_equal=int((among.is_silent & (among.n > 1)).sum()),
        n_matched=n_matched,
    )


def _known(scheme: Scheme, attempts: Attempts, name: str) -> npt.NDArray[Any]:
    """Return a step column that the scheme needs; acting steps must have a value."""
    column: npt.NDArray[Any] | None = getattr(attempts, name)
    if column is None:
        raise DataError(f"the scheme {scheme} needs the {name} of each step")
    is_unknown = np.isnan(column) if attempts.acting is None else np.isnan(column) & attempts.acting
    if is_unknown.any():
        step = int(is_unknown.argmax())
        episode = attempts.episode[step]
        place = step - int(np.searchsorted(attempts.episode, episode))
        raise DataError(f"episode {episode} step {place} has no {name}, and the scheme {scheme} needs it")
    return column


class Compared(NamedTuple):
    """Numbers compared with their group."""

    difference: Numbers
    """Per number: its difference to the mean of its group."""
    group: Indices
    """Per number: index of its group in the columns below."""
    n: Indices
    """Per group: how many numbers it has."""
    mean: Numbers
    """Per group: the mean, rounded once."""
    is_silent: Flags
    """Per group: whether its numbers are all equal, or it has only one."""
    deviation: Numbers
    """Per group: the sample deviation."""

    def relative(self, by_deviation: bool) -> Numbers:
        """Return the difference, divided by the deviation if asked for; 0 in a group of equal numbers."""
        if not by_deviation:
            return self.difference
        return self.difference / np.where(self.is_silent, 1.0, self.deviation)[self.group]


def compare(values: Numbers, key: Indices, *, rounding: float = 0.0) -> Compared:
    """Compare each number with those of the same key; the order of the numbers does not matter.

    Args:
        values: The numbers.
        key: Per number: equal keys are a group.
        rounding: Numbers of a group count as equal up to this difference, relative to the largest.
    """
    order = np.lexsort((values, key))  # sorted by value too: no sum depends on the caller's order
    ordered, keys = values[order], key[order]
    is_first = np.ones(len(keys), dtype=np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    starts = np.flatnonzero(is_first)
    n = np.diff(np.append(starts, len(keys)))
    least, most = ordered[starts], ordered[starts + n - 1]
    is_silent = most - least <= rounding * np.maximum(np.abs(least), np.abs(most))
    mean = least.copy()
    for group in np.flatnonzero(~is_silent):
        mean[group] = _mean(ordered[starts[group] : starts[group] + n[group]])
    difference = np.where(np.repeat(is_silent, n), 0.0, ordered - np.repeat(mean, n))
    # squared as shares of the largest difference, which cannot overflow
    largest = np.where(is_silent, 1.0, np.maximum(most - mean, mean - least))
    squares = (difference / np.repeat(largest, n)) ** 2
    sums = np.add.reduceat(squares, starts) if len(starts) else squares
    deviation = largest * np.sqrt(sums / np.maximum(n - 1, 1))
    back = np.argsort(order)
    return Compared(difference[back], np.cumsum(is_first)[back] - 1, n, mean, is_silent, deviation)


def _mean(numbers: Numbers) -> float:
    """Return the mean, rounded once, and clamped to the range of the sorted numbers."""
    each: list[float] = numbers.tolist()
    try:
        mean = math.fsum(each) / len(each)
    except OverflowError:
        mean = math.fsum(number / len(each) for number in each)
    return min(max(mean, each[0]), each[-1])


def _by_state(
    attempts: Attempts, gamma: float, by_deviation: bool, history: int
) -> tuple[Numbers, Flags, int]:
    """Return the second term of `gigpo`, which steps have none, and how many steps share their state."""
    returns = _returns(Scheme.GIGPO, attempts, gamma)
    total, weight = np.zeros(len(returns)), np.zeros(len(returns))
    n_matched = 0
    for depth, (rows, key) in enumerate(_contexts(attempts, history)):
        among = compare(returns[rows], key, rounding=_ROUNDING if by_deviation else 0.0)
        if depth == 0:
            n_matched = int(among.n[among.n > 1].sum())
        total[rows] += (depth + 1) * among.relative(by_deviation)
        weight[rows] += np.where(among.is_silent, 0, depth + 1)[among.group]
    return total / np.maximum(weight, 1), weight == 0, n_matched


def _contexts(attempts: Attempts, history: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield for each k up to `history` the steps with at least k predecessors, and keys of equal contexts."""
    place = np.arange(len(attempts.episode)) - np.searchsorted(attempts.episode, attempts.episode)
    state = _numbered(_known(Scheme.GIGPO, attempts, "state"))
    key = _paired(_numbered(attempts.group)[attempts.episode], state)
    rows = np.arange(len(state))
    yield rows, key
    for depth in range(1, history + 1):
        longer = place[rows] >= depth
        rows, key = rows[longer], key[longer]
        if not len(rows):
            return
        key = _paired(key, state[rows - depth])
        yield rows, key


def _numbered(values: Indices) -> Indices:
    """Replace equal values with equal numbers from 0."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _paired(one: Indices, other: Indices) -> Indices:
    """Replace equal pairs of numbers from 0 with equal numbers from 0."""
    return _numbered(one * (int(other.max(initial=0)) + 1) + other)


def _returns(scheme: Scheme, attempts: Attempts, gamma: float) -> Numbers:
    reward, factor = _known(scheme, attempts, "reward"), np.full(len(attempts.episode), gamma)
    if attempts.acting is not None:
        reward, factor = np.where(attempts.acting, reward, 0.0), np.where(attempts.acting, gamma, 1.0)
    return _backwards(attempts, reward, factor, np.zeros(len(attempts.score)))


def _generalized(attempts: Attempts, gamma: float, lam: float) -> Numbers:
    reward, value = (_known(Scheme.GAE, attempts, name) for name in ("reward", "value"))
    acting = np.ones(len(reward), dtype=np.bool_) if attempts.acting is None else attempts.acting
    reached = np.zeros(len(attempts.score))
    if attempts.terminated is not None and attempts.last_value is not None:
        reached = np.where(attempts.terminated, 0.0, attempts.last_value)
    # a call before an action has the value of the state before that action
    value = _backwards(attempts, np.where(acting, value, 0.0), np.where(acting, 0.0, 1.0), reached)
    following = np.roll(value, -1)
    is_last = np.ones(len(value), dtype=np.bool_)
    is_last[:-1] = attempts.episode[1:] != attempts.episode[:-1]
    following[is_last] = reached[attempts.episode[is_last]]
    error = np.where(acting, reward + gamma * following - value, 0.0)
    return _backwards(attempts, error, np.where(acting, gamma * lam, 1.0), np.zeros(len(reached)))


def _backwards(attempts: Attempts, own: Numbers, factor: Numbers, after: Numbers) -> Numbers:
    """Compute x_t = own_t + factor_t x_(t+1) in each episode, where x after the last step is `after`.

    Each iteration goes one step back in all episodes.
    """
    n_steps = np.bincount(attempts.episode, minlength=len(attempts.score))
    ends = np.cumsum(n_steps) - 1
    longest_first = np.argsort(-n_steps, kind="stable")
    ends, lengths, x = ends[longest_first], n_steps[longest_first], after[longest_first]
    result = np.empty(len(own))
    for back in range(int(lengths[0]) if len(lengths) else 0):
        rows = ends[: int(np.searchsorted(-lengths, -back, side="left"))] - back
        x = own[rows] + factor[rows] * x[: len(rows)]
        result[rows] = x
    return result
