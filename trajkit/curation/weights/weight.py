"""Compute how much each step counts in training, and describe the distribution of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import model_validator

from trajkit.curation.advantages import Scheme, advantages
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.options import validated
from trajkit.curation.selection.groups import Score, score_of
from trajkit.curation.weights.spread import Spread, spreads
from trajkit.curation.weights.weighing import ZERO, Gains, weigh
from trajkit.engines.engine import Engine
from trajkit.errors import DataError, NothingMatched, QueryError
from trajkit.schema import Left, LineageEntry, Manifest, MetricLevel
from trajkit.schema.base import Count, JsonObject, Model, Name, Text
from trajkit.store.conditions.nameable import nearest


class Baseline(StrEnum):
    """The mean that an advantage is relative to."""

    GROUP = "group"
    """Mean of the attempts of a group: environment, task and seed, or the columns `by`."""
    TASK = "task"
    """Mean of all episodes of the environment's task."""


class Normalization(StrEnum):
    """The divisor of the weights."""

    NONE = "none"
    """No division."""
    TASK = "task"
    """The mean of |w| over the learned steps of the same task: no task outweighs another because its rewards
    are larger (the aim of M. Hessel et al., PopArt, arXiv:1809.04474). Weights of 0 stay 0."""
    ALL = "all"
    """The mean of |w| over all learned steps, so that the learning rate keeps its meaning."""


_LARGEST = 3.4e38
"""Largest weight: trainers store weights in 32 bits."""
_COMPARING = tuple(scheme for scheme in Scheme if scheme.compares)
_FOR: dict[str, tuple[Scheme, ...]] = {
    "score": tuple(scheme for scheme in Scheme if scheme.needs_score),
    "gamma": (Scheme.RETURN_TO_GO, Scheme.GIGPO, Scheme.GAE),
    "lam": (Scheme.GAE,),
    "omega": (Scheme.GIGPO,),
    "history": (Scheme.GIGPO,),
    "no_deviation": (Scheme.GRPO, Scheme.GIGPO),
    "critic": (Scheme.GAE,),
    "baseline": _COMPARING,
    "by": _COMPARING,
    "temperature": (Scheme.EXPONENTIAL,),
    "clip": (Scheme.EXPONENTIAL,),
}
_NUMBERS = ("gamma", "lam", "omega", "history", "temperature", "clip")
"""Options that are passed to `advantages`, which has their defaults."""


class WeightOptions(Model):
    """Options of `trajkit weight`."""

    scheme: Scheme
    """Formula of the weights."""
    score: Name | None = None
    """The score of an episode: a metric, or `total_reward`; None for `episode_return` if the store has it,
    else `total_reward`. A metric for which smaller is better is negated."""
    gamma: float | None = None
    """Discount, from 0 to 1. None for the default of `advantages`, as for the five below."""
    lam: float | None = None
    """Lambda of `gae`, from 0 to 1."""
    omega: float | None = None
    """For `gigpo`: weight of the comparison by state, relative to that by episode."""
    history: int | None = None
    """For `gigpo`: number of earlier states that are also compared."""
    temperature: float | None = None
    """For `exponential`: a smaller value gives the best episodes more weight; above 0."""
    clip: float | None = None
    """For `exponential`: the largest weight; above 0."""
    no_deviation: bool = False
    """For `grpo` and `gigpo`: do not divide by the deviation."""
    critic: Name | None = None
    """For `gae`: the metric of steps that is a critic's value of the state before the step."""
    baseline: Baseline = Baseline.GROUP
    """The mean that an advantage is relative to."""
    by: tuple[Text, ...] = ()
    """Columns that make a group; empty for environment, task and seed."""
    normalize: Normalization = Normalization.NONE
    """The divisor of the final weights."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given, scheme = self.model_fields_set, self.scheme
        for name, schemes in _FOR.items():
            if name in given and scheme not in schemes:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} is for the scheme {' or '.join(schemes)}, not for {scheme}")
        if scheme == Scheme.RETURN_TO_GO and self.gamma is None:
            raise ValueError("return-to-go needs --gamma, the discount: 1 for none")
        if scheme == Scheme.GAE and self.critic is None:
            raise ValueError("gae needs --critic: the metric of steps that holds a critic's values")
        for name, value in self.numbers.items():
            if name in ("gamma", "lam") and not 0 <= value <= 1:
                raise ValueError(f"--{name} {value} is not from 0 to 1")
            if name in ("omega", "history") and value < 0:
                raise ValueError(f"--{name} {value} is below 0")
            if name in ("temperature", "clip") and value <= 0:
                raise ValueError(f"--{name} {value} is not above 0")
        if "by" in given and self.baseline == Baseline.TASK:
            raise ValueError("--by makes groups, but --baseline task uses the task as the group")
        return self

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that this scheme uses, with the defaults of `advantages`."""
        defaults = advantages.__kwdefaults__ or {}
        return {
            name: defaults[name] if getattr(self, name) is None else getattr(self, name)
            for name in _NUMBERS
            if self.scheme in _FOR[name]
        }


class WeightReport(Model):
    """Result of weighting."""

    scheme: Scheme
    """The scheme."""
    score: Name | None
    """The score of the episodes; None if the scheme uses none."""
    n_groups: Count
    """Groups of attempts with a learned episode; 0 if the scheme compares none."""
    n_single: Count
    """Groups of one attempt, without a comparison."""
    n_equal: Count
    """Groups whose attempts all have the same score."""
    n_matched: Count
    """For `gigpo`: steps whose state occurs in another step of their group."""
    all: Spread
    """The weights of the whole store."""
    tasks: tuple[Spread, ...]
    """The weights by task."""
    notes: tuple[Text, ...]
    """Notes for the reader, such as that all returns are equal."""


class Weighted(NamedTuple):
    """The new store, its lineage entry and the counts."""

    manifest: Manifest | None
    """None if nothing was written."""
    entry: LineageEntry
    report: WeightReport


def weight(
    path: str | Path,
    goal: Path | None,
    *,
    scheme: Scheme | str,
    threads: int | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> Weighted:
    """Write a store whose learned steps have a new `loss_weight`, which does not depend on the old one.

    Steps that are not learned stay so. A weight of exactly 0 makes a step context only, with the
    `mask_reason` 'weight 0', which another weighting can undo. No weight depends on the order of rows, on
    threads or on parts.

    Args:
        path: The store, or `sample:NAME`.
        goal: The folder to write; None only computes.
        scheme: One of `Scheme`, which has the formulas and their sources.
        threads: None for one per core.
        engine: Writes the new store; None for this process.
        **options: The other fields of `WeightOptions`.

    Raises:
        RequestError: An option is invalid, or not for this scheme.
        QueryError: The score or a column does not exist.
        DataError: A learned episode has no score or lacks a reward, or a weight is too large.
        NothingMatched: No step is learned, or every weight is 0.
        StoreError: `goal` exists, or a store cannot be read or written.
    """
    asked = validated(WeightOptions, {"scheme": scheme, **options}, of="weight")
    with deriving(path, threads=threads, engine=engine, goal=goal) as derivation:
        score = None
        if asked.scheme.needs_score:
            score = score_of(derivation.store, derivation.connection, asked.score)
        metrics = derivation.store.manifest.metrics
        of_steps = [each.name for each in metrics if each.level == MetricLevel.INFERENCE]
        if asked.critic is not None and asked.critic not in of_steps:
            raise QueryError(
                f"no metric {asked.critic!r} of steps in {derivation.store.path}",
                hint=nearest(asked.critic, of_steps),
            )
        gains = weigh(
            derivation,
            asked.scheme,
            score=score,
            by=asked.by if asked.scheme.compares and asked.baseline == Baseline.GROUP else None,
            critic=asked.critic,
            normalize=asked.normalize.value,
            by_deviation=not asked.no_deviation,
            **asked.numbers,
        )
        _check(derivation, asked, gains)
        whole, tasks = spreads(gains.weights)
        report = WeightReport(
            scheme=asked.scheme,
            score=score.name if score else None,
            n_groups=gains.found.n_groups,
            n_single=gains.found.n_single,
            n_equal=gains.found.n_equal,
            n_matched=gains.found.n_matched,
            all=whole,
            tasks=tasks,
            notes=tuple(_notes(asked, gains, whole)),
        )
        arguments = _arguments(asked, score)
        masked = [Left(reason=ZERO, n_steps=whole.n_zero)]
        if goal is None:
            return Weighted(None, derivation.entry(verb="weight", arguments=arguments, masked=masked), report)
        manifest = derivation.write(
            goal, verb="weight", arguments=arguments, steps="trajkit_weighted_steps", masked=masked
        )
        return Weighted(manifest, manifest.lineage[-1], report)


def _arguments(asked: WeightOptions, score: Score | None) -> JsonObject:
    """Return all options that decide the weights, also defaults, which may change in later versions."""
    named = {"scheme", "normalize", *(name for name, schemes in _FOR.items() if asked.scheme in schemes)}
    arguments: JsonObject = asked.model_dump(mode="json", include=named)
    return arguments | asked.numbers | ({"score": score.name} if score else {})


def _check(derivation: Derivation, asked: WeightOptions, gains: Gains) -> None:
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
        cause = _equal(asked.scheme, gains) or "the learned steps earned exactly 0"
        if asked.scheme == Scheme.EXPONENTIAL:
            cause = f"at temperature {asked.numbers['temperature']:g} all of it is too far below the mean"
        raise NothingMatched(
            f"every weight of {path} would be 0: {cause}",
            hint="--scheme uniform, another --score, or more attempts at each group",
        )


def _notes(asked: WeightOptions, gains: Gains, whole: Spread) -> Iterator[str]:
    found, scheme = gains.found, asked.scheme
    n_silent = found.n_single + found.n_equal
    if scheme != Scheme.GIGPO and (equal := _equal(scheme, gains)):
        yield f"{equal}: the weights are all equal, as with --scheme uniform"
    elif n_silent:
        noun = "tasks" if asked.baseline == Baseline.TASK else "groups"
        value = {Scheme.EXPONENTIAL: "1", Scheme.GIGPO: "that of their states alone"}.get(scheme, "0")
        yield (
            f"{n_silent:,} of {found.n_groups:,} {noun} have one attempt or only equal scores: "
            f"before any normalisation their weight is {value}"
        )
    if scheme == Scheme.GIGPO:
        yield (
            f"{found.n_matched:,} of {len(found.values):,} steps share their state with another step of "
            "their group; the others count by their episode alone"
        )
    if scheme.compares and gains.n_keyless:
        yield (
            f"{gains.n_keyless:,} of {gains.n_episodes:,} episodes lack {' or '.join(asked.by)}: each is a "
            "group of its own"
        )
    if scheme == Scheme.GAE and gains.n_cut_off:
        yield (
            f"{gains.n_cut_off:,} of {gains.n_episodes:,} episodes were cut off by a step limit: their "
            "further reward counts as 0"
        )
    if whole.n_negative:
        yield f"{whole.n_negative:,} steps have a weight below 0: a target that takes none leaves them out"


def _equal(scheme: Scheme, gains: Gains) -> str | None:
    """Return a sentence if no episode has a better score than another of its group."""
    found = gains.found
    if not scheme.needs_score or (scheme.compares and found.n_single + found.n_equal < found.n_groups):
        return None
    if gains.least == gains.most:
        return f"every episode to learn from has the score {gains.least:g} ({gains.n_episodes:,} of them)"
    return "no group has two attempts of different scores" if scheme.compares else None
