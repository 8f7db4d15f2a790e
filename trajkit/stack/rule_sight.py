"""BabyAI's sentences as values: what an observation shows, what a mission wants, what a history remembers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

_COLORS = "red|green|blue|purple|yellow|grey"
_KINDS = "key|ball|box|door"
_STEPS = r"(\d+) steps?"
_WALL = re.compile(rf"a wall {_STEPS} (forward|left|right)")
_CARRY = re.compile(rf"You carry an? ({_COLORS}) ({_KINDS})")
_THING = re.compile(
    rf"an? (?:(open|closed|locked) )?({_COLORS}) ({_KINDS}) "
    rf"(?:{_STEPS} (left|right)(?: and {_STEPS} forward)?|{_STEPS} forward)"
)
_NAMED = rf"(?:the|a) (?:({_COLORS}) )?({_KINDS})"
_CLAUSE = re.compile(rf"(?:(go to|pick up|open) {_NAMED}|put {_NAMED} next to {_NAMED})")
_ANY = rf"(?:the|a) (?:(?:{_COLORS}) )?(?:{_KINDS})"
_ANY_CLAUSE = rf"(?:(?:go to|pick up|open) {_ANY}|put {_ANY} next to {_ANY})"
MISSION = re.compile(rf"\b{_ANY_CLAUSE}(?:(?:, then| after you) {_ANY_CLAUSE})?\b", re.IGNORECASE)
"""A mission anywhere in a text."""


class Look(NamedTuple):
    """What an object looks like; a missing color fits any."""

    color: str | None
    kind: str

    def __str__(self) -> str:
        return f"{self.color} {self.kind}" if self.color else self.kind

    def fits(self, other: Look) -> bool:
        """Whether an object that looks like `other` is meant."""
        return self.kind == other.kind and self.color in (None, other.color)


class Thing(NamedTuple):
    """An object and where it is, in steps from the agent, to its right and ahead of it."""

    look: Look
    right: int
    forward: int
    is_open: bool = False

    def after(self, action: str, *, has_moved: bool) -> Thing:
        """Where the same object is after the agent turned or moved."""
        if action == "turn left":
            return self._replace(right=self.forward, forward=-self.right)
        if action == "turn right":
            return self._replace(right=-self.forward, forward=self.right)
        if action == "go forward" and has_moved:
            return self._replace(forward=self.forward - 1)
        return self


class View(NamedTuple):
    """What one observation shows."""

    carried: Look | None
    wall_ahead: int | None
    """Steps to the wall in front; None when something else is seen there."""
    things: tuple[Thing, ...]

    @property
    def is_free_ahead(self) -> bool:
        """Whether the agent can step forward."""
        blocked = any(thing.right == 0 and thing.forward == 1 and not thing.is_open for thing in self.things)
        return self.wall_ahead != 1 and not blocked


class Goal(NamedTuple):
    """One thing to bring about."""

    verb: str
    """`go to`, `pick up`, `open` or `put`."""
    what: Look
    beside: Look | None = None
    """For `put`: what it shall lie next to."""


class Past(NamedTuple):
    """An earlier step: what was seen, and what was done then."""

    observation: str
    action: str


def is_sight(line: str) -> bool:
    """Whether a line is one that BabyAI's observations are made of."""
    return any(pattern.fullmatch(line.strip()) for pattern in (_WALL, _CARRY, _THING))


def read_view(observation: str) -> View | None:
    """What an observation shows; None when no line of it is BabyAI's. Other lines are passed over."""
    carried, wall_ahead, things = None, None, []
    lines = [line.strip() for line in observation.splitlines() if is_sight(line)]
    for line in lines:
        if held := _CARRY.fullmatch(line):
            carried = Look(held[1], held[2])
        elif wall := _WALL.fullmatch(line):
            wall_ahead = int(wall[1]) if wall[2] == "forward" else wall_ahead
        elif seen := _THING.fullmatch(line):
            state, color, kind, aside, side, ahead, straight = seen.groups()
            right = int(aside or 0) * (1 if side == "right" else -1)
            things.append(Thing(Look(color, kind), right, int(ahead or straight or 0), state == "open"))
    return View(carried, wall_ahead, tuple(things)) if lines else None


def read_mission(mission: str) -> tuple[Goal, ...]:
    """The goals of a mission in the order in which they must be reached; empty when it is not BabyAI's."""
    goals = []
    for clause in _CLAUSE.finditer(mission.lower()):
        verb, color, kind, moved_color, moved_kind, fixed_color, fixed_kind = clause.groups()
        if verb:
            goals.append(Goal(verb, Look(color, kind)))
        else:
            goals.append(Goal("put", Look(moved_color, moved_kind), Look(fixed_color, fixed_kind)))
    return tuple(reversed(goals) if " after you " in mission.lower() else goals)


def remembered(history: Sequence[Past], now: View) -> tuple[Thing, ...]:
    """Objects that were seen before and are out of sight now, where they must be by what was done since."""
    known: dict[Look, Thing] = {}
    views = [*(read_view(past.observation) for past in history), now]
    for past, (before, after) in zip(history, pairwise(views), strict=True):
        if before is None or after is None:
            known = {}
            continue
        known |= {thing.look: thing for thing in before.things}
        has_moved = before.is_free_ahead
        known = {look: thing.after(past.action, has_moved=has_moved) for look, thing in known.items()}
        if after.carried is not None:
            known.pop(after.carried, None)
    return tuple(thing for look, thing in known.items() if look not in _looks(now.things))


def _looks(things: Iterable[Thing]) -> set[Look]:
    return {thing.look for thing in things}
