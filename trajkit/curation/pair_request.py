"""What `trajkit pairs` is asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from trajkit.schema.base import Model, Name, Text


class Match(StrEnum):
    """What the two sides of a pair have in common."""

    STATE = "state"
    """Environment, task, seed and initial state, and everything seen and done up to the first divergence."""
    PROMPT = "prompt"
    """The prompt that the model saw, and its tools."""
    DEMONSTRATION = "demonstration"
    """The step: its answer, and the better one that somebody gave for it."""


class Level(StrEnum):
    """What a side is."""

    STEP = "step"
    """One answer."""
    EPISODE = "episode"
    """All turns from there to the end of the episode."""


class PairOptions(Model):
    """The options of `trajkit.curation.pairs.pairs`."""

    match: Match = Match.STATE
    """What the sides have in common."""
    level: Level = Level.STEP
    """What a side is; a demonstration is always one answer."""
    margin: float | None = None
    """How much better the chosen episode's score is at least, above 0. Required but for demonstrations, which
    have none."""
    per_state: Annotated[int, Field(ge=1)] = 1
    """At most so many pairs of one state or prompt: those with the largest margins."""
    same_prompt: bool = False
    """By state, pair only what was also given the same prompt and tools: not two variants that ask in other
    words, nor two histories with other thoughts in them."""
    score: Name | None = None
    """What to compare by; None for `episode_return` if there, else `total_reward`."""
    by: tuple[Text, ...] = ()
    """Columns that make the group key; none for the default (`trajkit.curation.keys`)."""
    include_eval: bool = False
    """Pair evaluation episodes too, among themselves."""
    verify: bool = True
    """Replay pairs by state where that is possible."""
    env: Name | None = None
    """The environment to replay in, such as `my_pkg.env:MyEnv`; None replays those that trajkit knows, and
    never code that only the data names."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.match == Match.DEMONSTRATION:
            if self.margin is not None or self.score is not None:
                raise ValueError("a demonstration has no score: --margin and --score are not for it")
            if self.level != Level.STEP:
                raise ValueError("a demonstration is one answer: --level step")
        elif self.margin is None:
            raise ValueError("no --margin: how much better must the chosen side be? Such as --margin 0.1")
        elif self.margin <= 0:
            raise ValueError(f"--margin {self.margin} is not above 0")
        if self.match != Match.STATE and (self.same_prompt or self.env is not None):
            raise ValueError("--same-prompt and --env are for --match state")
        return self
