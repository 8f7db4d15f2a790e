"""Play reproducible random episodes, and compare two of them."""

from __future__ import annotations

import random
from typing import NamedTuple

from trajkit.environments.base import Environment, Result, Start

WORDS = ("yes", "no", "1", "2", "look", "go forward", "help")
"""The actions that are tried if any text is an action."""


class Trace(NamedTuple):
    """The record of one episode."""

    seed: int
    start: Start
    results: tuple[Result, ...]
    scores: dict[str, float]
    """Statistics after the last step."""
    legal: tuple[tuple[str, ...], ...]
    """Available actions before each step."""

    @property
    def is_over(self) -> bool:
        """Whether the episode ended."""
        return bool(self.results) and (self.results[-1].terminated or self.results[-1].truncated)

    @property
    def total_reward(self) -> float:
        """Sum of the rewards."""
        return sum(result.reward for result in self.results)


class Player:
    """Plays an environment step by step with actions that depend on the seed only.

    Args:
        world: The environment.
        seed: Seed of the episode.
    """

    def __init__(self, world: Environment, seed: int) -> None:
        self._world, self._seed = world, seed
        self._chance = random.Random(f"actions of {seed}")
        self._start = world.reset(seed)
        self._results: list[Result] = []
        self._legal: list[tuple[str, ...]] = []
        self.is_over = False

    def step(self) -> None:
        """Execute one random legal action."""
        legal = self._world.legal_actions()
        result = self._world.step(self._chance.choice(legal or WORDS))
        self._legal.append(legal)
        self._results.append(result)
        self.is_over = result.terminated or result.truncated

    def trace(self) -> Trace:
        """Return the record so far."""
        scores = self._world.statistics()
        return Trace(self._seed, self._start, tuple(self._results), scores, tuple(self._legal))


def play(world: Environment, seed: int, *, n_steps: int) -> Trace:
    """Play one episode, with a limit on the steps."""
    player = Player(world, seed)
    for _ in range(n_steps):
        player.step()
        if player.is_over:
            break
    return player.trace()


def difference(one: Trace, other: Trace) -> str | None:
    """Describe the first difference between two episodes; None if they are equal."""
    for name in ("mission", "observation", "initial_state_hash"):
        if getattr(one.start, name) != getattr(other.start, name):
            return _changed(f"at the start, the {_said(name)}", one.start, other.start, name)
    steps = zip(one.results, other.results, one.legal, other.legal, strict=False)
    for index, (mine, theirs, my_legal, their_legal) in enumerate(steps):
        if my_legal != their_legal:
            return f"before step {index}, the legal actions"
        for name in Result._fields:
            if getattr(mine, name) != getattr(theirs, name):
                return _changed(f"after step {index}, the {_said(name)}", mine, theirs, name)
    if len(one.results) != len(other.results):
        return f"the length: {len(one.results)} and {len(other.results)} steps"
    if one.scores != other.scores:
        return f"at the end, the statistics: {one.scores} and {other.scores}"
    return None


def _said(name: str) -> str:
    return name.replace("_", " ").replace("initial state", "initial-state")


def _changed(where: str, one: object, other: object, name: str) -> str:
    shown = [repr(getattr(side, name)) for side in (one, other)]
    return f"{where}: " + " and ".join(text if len(text) <= 60 else text[:59] + "…" for text in shown)
