"""How much each step counts in training: weights from returns, and how they are spread."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import model_validator

from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.groups import Score, score_of
from trajkit.curation.options import validated
from trajkit.curation.spread import Spread, spreads
from trajkit.curation.weighing import ZERO, Gains, normalize, weigh
from trajkit.errors import DataError, NothingMatched
from trajkit.schema import Left, LineageEntry, Manifest
from trajkit.schema.base import JsonObject, Model, Name, Text


class Scheme(StrEnum):
    """How a weight comes from what an episode earned. R is its score, t a step, mean(R) that of its group."""

    UNIFORM = "uniform"
    """w = 1: behaviour cloning of what the store holds (D. Pomerleau, ALVINN, NeurIPS 1988)."""
    RETURN = "return"
    """w = R: reward-weighted regression (J. Peters and S. Schaal, "Reinforcement learning by reward-weighted
    regression for operational space control", ICML 2007). It is meant for scores from 0; a negative score
    gives a negative weight, which is told."""
    RETURN_TO_GO = "return-to-go"
    """w_t = r_t + gamma r_(t+1) + gamma^2 r_(t+2) + …: what came of the step, and not what was before it (R.
    Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
    Machine Learning 8, 1992; R. Sutton et al., "Policy gradient methods for reinforcement learning with
    function approximation", NeurIPS 1999)."""
    ADVANTAGE = "advantage"
    """w = R - mean(R): REINFORCE with a baseline (Williams 1992), which is the mean of the attempts at the
    same (Z. Shao et al., DeepSeekMath, arXiv:2402.03300) and not divided by their deviation, which would
    favour tasks that are nearly always or nearly never done (Z. Liu et al., arXiv:2503.20783)."""
    EXPONENTIAL = "exponential"
    """w = min(exp((R - mean(R)) / temperature), clip): advantage-weighted regression (X. Peng et al., "AWR",
    arXiv:1910.00177, equation 7 and section 5, where clip is 20); the value function is the group's mean."""


class Baseline(StrEnum):
    """The mean that an advantage is against."""

    GROUP = "group"
    """Of the attempts at the same: environment, task and seed, or what `by` says."""
    TASK = "task"
    """Of all episodes of the environment's task."""


class Normalization(StrEnum):
    """What the weights are divided by."""

    NONE = "none"
    """By nothing."""
    TASK = "task"
    """By the mean of |w| over the learned steps of the same task: no task outweighs another because its
    rewards are larger (the aim of M. Hessel et al., PopArt, arXiv:1809.04474). Weights of 0 stay 0."""
    ALL = "all"
    """By the mean of |w| over all learned steps, which leaves the learning rate its meaning."""


_NEED_MEAN = (Scheme.ADVANTAGE, Scheme.EXPONENTIAL)
_NEED_SCORE = (Scheme.RETURN, *_NEED_MEAN)
_LARGEST = 3.4e38
"""Trainers keep weights in 32 bits."""
_FOR: dict[str, tuple[Scheme, ...]] = {
    "score": _NEED_SCORE,
    "gamma": (Scheme.RETURN_TO_GO,),
    "baseline": _NEED_MEAN,
    "by": _NEED_MEAN,
    "temperature": (Scheme.EXPONENTIAL,),
    "clip": (Scheme.EXPONENTIAL,),
}


class WeightOptions(Model):
    """What `trajkit weight` is asked for."""

    scheme: Scheme
    """How a weight comes from what an episode earned."""
    score: Name | None = None
    """The score of an episode: a metric, or `total_reward`; None for `episode_return` if there, else
    `total_reward`. A metric that is to be kept small counts negated."""
    gamma: float | None = None
    """Discount of `return-to-go`, from 0 to 1."""
    baseline: Baseline = Baseline.GROUP
    """What an advantage is against."""
    by: tuple[Text, ...] = ()
    """Columns that make a group; none for environment, task and seed."""
    temperature: float = 1.0
    """Of `exponential`: the smaller, the more the best episodes count; above 0."""
    clip: float = 20.0
    """Of `exponential`: the largest weight; above 0."""
    normalize: Normalization = Normalization.NONE
    """What the weights are divided by at last."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given, scheme = self.model_fields_set, self.scheme
        for name, schemes in _FOR.items():
            if name in given and scheme not in schemes:
                raise ValueError(f"--{name} is for the scheme {' or '.join(schemes)}, not for {scheme}")
        if scheme == Scheme.RETURN_TO_GO and self.gamma is None:
            raise ValueError("return-to-go needs --gamma, the discount: 1 for none")
        if self.gamma is not None and not 0 <= self.gamma <= 1:
            raise ValueError(f"--gamma {self.gamma} is not from 0 to 1")
        for name in ("temperature", "clip"):
            if getattr(self, name) <= 0:
                raise ValueError(f"--{name} {getattr(self, name)} is not above 0")
        if "by" in given and self.baseline == Baseline.TASK:
            raise ValueError("--by makes groups, and --baseline task takes the task for one")
        return self


class WeightReport(Model):
    """What weighting came to."""

    scheme: Scheme
    """As asked."""
    score: Name | None
    """What the episodes were scored by; None when the scheme asks for no score."""
    all: Spread
    """The weights of the whole store."""
    tasks: tuple[Spread, ...]
    """By task."""
    notes: tuple[Text, ...]
    """What a reader should know of them, such as that all returns are equal."""


class Weighted(NamedTuple):
    """The new store, and what was done."""

    manifest: Manifest | None
    """None when nothing was written."""
    entry: LineageEntry
    report: WeightReport


def weight(
    path: str | Path,
    goal: Path | None,
    *,
    scheme: Scheme | str,
    threads: int | None = None,
    **options: Any,
) -> Weighted:
    """Write a store whose learned steps have a new `loss_weight`; what it was before does not count.

    Steps that are not learned stay so. A weight of exactly 0 makes a step context only, with the
    `mask_reason` 'weight 0'; another weighting takes it up again. No weight depends on the order of rows, on
    threads or on parts.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder that exists afterwards; None to compute and write nothing.
        scheme: One of `Scheme`, which has the formulas and where they are from.
        threads: None for one per core.
        **options: The other fields of `WeightOptions`.

    Raises:
        RequestError: An option has no such value, or is not for this scheme.
        QueryError: There is no such score or column.
        DataError: An episode to learn from has no score or lacks a reward, or a weight is too large.
        NothingMatched: No step is learned, or every weight is 0.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    asked = validated(WeightOptions, {"scheme": scheme, **options}, of="weight")
    with deriving(path, threads=threads) as derivation:
        score = _score(derivation, asked)
        gains = _weigh(derivation, asked, score)
        _check(derivation, asked, gains)
        whole, tasks = spreads(derivation, "trajkit_weight", "trajkit_task")
        notes = tuple(_notes(asked, gains, whole))
        report = WeightReport(
            scheme=asked.scheme, score=score.name if score else None, all=whole, tasks=tasks, notes=notes
        )
        arguments = _arguments(asked, score)
        masked = [Left(reason=ZERO, n_steps=whole.n_zero)]
        if goal is None:
            return Weighted(None, derivation.entry(verb="weight", arguments=arguments, masked=masked), report)
        manifest = derivation.write(
            goal, verb="weight", arguments=arguments, steps="trajkit_weighted_steps", masked=masked
        )
        return Weighted(manifest, manifest.lineage[-1], report)


def _score(derivation: Derivation, asked: WeightOptions) -> Score | None:
    if asked.scheme not in _NEED_SCORE:
        return None
    return score_of(derivation.store, derivation.connection, asked.score)


def _weigh(derivation: Derivation, asked: WeightOptions, score: Score | None) -> Gains | None:
    by = None
    if asked.scheme in _NEED_MEAN:
        by = None if asked.baseline == Baseline.TASK else asked.by
    gains = weigh(
        derivation,
        score=score,
        gamma=asked.gamma,
        has_mean=asked.scheme in _NEED_MEAN,
        by=by,
        exponential=(asked.temperature, asked.clip) if asked.scheme == Scheme.EXPONENTIAL else None,
    )
    if asked.normalize != Normalization.NONE:
        normalize(derivation, per_task=asked.normalize == Normalization.TASK)
    return gains


def _arguments(asked: WeightOptions, score: Score | None) -> JsonObject:
    """What decides the weights, defaults too: they may change one day."""
    named = {"scheme", "normalize", *(name for name, schemes in _FOR.items() if asked.scheme in schemes)}
    arguments: JsonObject = asked.model_dump(mode="json", include=named)
    return arguments | ({"score": score.name} if score else {})


def _check(derivation: Derivation, asked: WeightOptions, gains: Gains | None) -> None:
    run = derivation.connection.execute
    path = derivation.store.path
    (counts,) = run("SELECT count(*), count(*) FILTER (WHERE value <> 0) FROM trajkit_weight").fetchall()
    if not counts[0]:
        raise NothingMatched(f"no step of {path} is learned", hint="`trajkit info` shows why")
    found = run(
        "SELECT episode_id, step_index, value FROM trajkit_weight "
        f"WHERE NOT abs(value) <= {_LARGEST!r} ORDER BY ALL LIMIT 1"
    ).fetchone()
    if found:
        raise DataError(
            f"episode {found[0]} step {found[1]}: the weight {found[2]} is too large for a trainer",
            hint="divide the scores first, or use another --score",
        )
    if not counts[1]:
        told = _equal(gains) or "what would be learned earned exactly 0"
        if asked.scheme == Scheme.EXPONENTIAL:
            told = f"at temperature {asked.temperature:g} all of it is too far below the mean"
        raise NothingMatched(
            f"every weight of {path} would be 0: {told}",
            hint="--scheme uniform, another --score, or more attempts at each group",
        )


def _notes(asked: WeightOptions, gains: Gains | None, whole: Spread) -> list[str]:
    notes = []
    if gains is not None and (equal := _equal(gains)):
        notes.append(f"{equal}: the weights are all alike, and say no more than uniform ones")
    elif gains is not None and gains.has_mean and gains.n_silent:
        of_what = "tasks" if asked.baseline == Baseline.TASK else "groups"
        value = 0 if asked.scheme == Scheme.ADVANTAGE else 1
        notes.append(
            f"{gains.n_silent:,} of {gains.n_groups:,} {of_what} have one attempt or only equal scores: "
            f"before any normalisation their weight is {value}"
        )
    if gains is not None and gains.has_mean and gains.n_keyless:
        notes.append(
            f"{gains.n_keyless:,} of {gains.n_episodes:,} episodes lack {' or '.join(asked.by)}: each is a "
            "group of its own"
        )
    if whole.n_negative:
        notes.append(
            f"{whole.n_negative:,} steps have a weight below 0: a target that takes none leaves them out"
        )
    return notes


def _equal(gains: Gains | None) -> str | None:
    """What to say where no episode did better than another that it is compared with."""
    if gains is None or (gains.has_mean and gains.n_silent < gains.n_groups):
        return None
    if gains.least == gains.most:
        return f"every episode to learn from has the score {gains.least:g} ({gains.n_episodes:,} of them)"
    return "no group has two attempts of different scores" if gains.has_mean else None
