"""The BabyAI worlds on minigrid and their expert: five tasks; a seed gives the same world as in BALROG.

Do not change the order of the random draws: recorded episodes can be replayed only if every draw stays in its
place. Import this module only after `need("minigrid", ...)`, because it subclasses minigrid's classes.
"""

# mypy: disable-error-code="no-untyped-call"
# minigrid 3.2.0 claims to be typed, but most of its functions are not

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from minigrid.core.actions import Actions
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX
from minigrid.core.roomgrid import RoomGrid
from minigrid.core.world_object import Key, WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

_EMPTY, _WALL, _DOOR = OBJECT_TO_IDX["empty"], OBJECT_TO_IDX["wall"], OBJECT_TO_IDX["door"]
_DOOR_STATES = ("open", "closed", "locked")

_HELD_OUT = ("yellow box", "red key", "red door", "green ball", "grey door")
"""Missions with one of these are drawn again, because the benchmark reserves them to test generalisation."""

_DOOR_COLORS = ("yellow", "green", "blue", "purple")


class Outcome(NamedTuple):
    """The result of one action."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


class Level(RoomGridLevel):
    """One room of 8 by 8 with one or two objects; for `open`, two rooms, a locked door and its key."""

    def __init__(self, task: str) -> None:
        self._task = task
        super().__init__(room_size=8, num_rows=1, num_cols=2 if task == "open" else 1)

    def begin(self, seed: int) -> str:
        """Draw the world of this seed and return the first observation."""
        view, _ = self.reset(seed=seed)
        return describe(view["image"], self.carrying)

    def act(self, number: int) -> Outcome:
        """Execute the action with this number in minigrid."""
        view, reward, terminated, truncated, _ = self.step(number)
        observation = describe(view["image"], self.carrying)
        return Outcome(observation, float(reward), bool(terminated), bool(truncated))

    def _gen_grid(self, width: int, height: int) -> None:
        # minigrid's own loop prints each rejection to stdout, where it would corrupt JSON lines.
        while True:
            try:
                RoomGrid._gen_grid(self, width, height)
                self.gen_mission()
                self.validate_instrs(self.instrs)
            except (RejectSampling, RecursionError):
                continue
            break
        self.surface = self.mission = self.instrs.surface(self)

    def gen_mission(self) -> None:
        """Draw worlds until every object can be reached and the mission is not a reserved one."""
        while True:
            RoomGrid._gen_grid(self, self.width, self.height)
            self.instrs = self._draw_open() if self._task == "open" else self._draw_objects()
            mission = self.instrs.surface(self)
            if self.check_objs_reachable(raise_exc=False) and not any(name in mission for name in _HELD_OUT):
                return

    def _draw_open(self) -> Instr:
        color = self._rand_elem(_DOOR_COLORS)
        while True:
            locked, side = self._rand_int(0, 2), self._rand_int(0, 4)
            if self.get_room(locked, 0).neighbors[side] is not None:
                break
        self.add_door(locked, 0, side, color, locked=True)
        with_key = self._rand_int(0, 2)
        while with_key == locked:
            with_key = self._rand_int(0, 2)
        self.place_in_room(with_key, 0, Key(color))
        self.place_agent()
        while self.room_from_pos(*self.agent_pos) is self.get_room(locked, 0):
            self.place_agent()
        return OpenInstr(ObjDesc("door", self._rand_elem((None, color))))

    def _draw_objects(self) -> Instr:
        self.place_agent()
        n_objects = 2 if self._task in ("putnext", "pick_up_seq_go_to") else 1
        objects = self.add_distractors(num_distractors=n_objects, all_unique=False)
        first = self._rand_elem(objects)
        description = ObjDesc(first.type, first.color)
        if self._task == "goto":
            return GoToInstr(description)
        if self._task == "pickup":
            return PickupInstr(description)
        other = self._draw_other(objects, first)
        if self._task == "putnext":
            return PutNextInstr(description, other)
        pick_up, go_to = PickupInstr(description), GoToInstr(other)
        if self._rand_elem(("before", "after")) == "before":
            return BeforeInstr(pick_up, go_to)
        return AfterInstr(go_to, pick_up)

    def _draw_other(self, objects: list[WorldObj], first: WorldObj) -> ObjDesc:
        """Return the second object of a mission. It equals the first only if there are two of them."""
        looks = [(item.type, item.color) for item in objects]
        may_look_alike = looks.count((first.type, first.color)) > 1
        while True:
            other = self._rand_elem(objects)
            if may_look_alike or (other.type, other.color) != (first.type, first.color):
                return ObjDesc(other.type, other.color)


class Expert:
    """minigrid's planner, which gets the executed actions and is replaced by a new one when it fails.

    Args:
        level: The world, in its current state.
        default: Number of the action to return when there is nothing left to plan.
    """

    def __init__(self, level: Level, *, default: int) -> None:
        self._level = level
        self._default = default
        self._bot = BabyAIBot(level)
        self._last: int | None = None
        self._advice: int | None = None

    def saw(self, action: int) -> None:
        """Record an executed action. `advise` must have been called in the state before it."""
        self._last, self._advice = action, None

    def advise(self) -> int:
        """Return the number of the planner's next action. Repeated calls change nothing."""
        if self._advice is None:
            advice = self._replan(self._last)
            if advice is None:
                self._bot = BabyAIBot(self._level)
                advice = self._replan(None)
            self._advice = self._default if advice is None or advice == Actions.done else advice
        return self._advice

    def _replan(self, last: int | None) -> int | None:
        """Return the planner's next action, or None when it fails.

        The planner makes assumptions that the actions of another player can break.
        """
        try:
            return int(self._bot.replan(last))
        except (DisappearedBoxError, AssertionError, AttributeError, TypeError, IndexError):
            return None


def describe(image: Any, carrying: Any) -> str:
    """Return the observation as text.

    Args:
        image: minigrid's encoded view, 7 by 7 cells of (object, color, state); the agent is at column 3,
            row 6, and faces row 0.
        carrying: The object that the agent carries, or None.
    """
    lines = []
    if carrying is not None:
        lines.append(f"You carry a {carrying.color} {carrying.type}")
    cells = image.tolist()
    sights = (
        ("forward", (cells[3][row][0] for row in range(5, -1, -1))),
        ("left", (cells[column][6][0] for column in (2, 1, 0))),
        ("right", (cells[column][6][0] for column in (4, 5, 6))),
    )
    for side, sight in sights:
        for distance, kind in enumerate(sight, start=1):
            if kind == _WALL:
                lines.append(f"a wall {_steps(distance)} {side}")
            if kind != _EMPTY:
                break
    for column, strip in enumerate(cells):
        for row, (kind, color, state) in enumerate(strip):
            if kind > _WALL and (column, row) != (3, 6):
                status = f"{_DOOR_STATES[state]} " if kind == _DOOR else ""
                where = _place(column - 3, 6 - row)
                lines.append(f"a {status}{IDX_TO_COLOR[color]} {IDX_TO_OBJECT[kind]} {where}")
    return "\n".join(lines)


def _steps(number: int) -> str:
    return "1 step" if number == 1 else f"{number} steps"


def _place(right: int, forward: int) -> str:
    parts = []
    if right:
        parts.append(f"{_steps(abs(right))} {'right' if right > 0 else 'left'}")
    if forward:
        parts.append(f"{_steps(forward)} forward")
    return " and ".join(parts)


def state_hash(level: Level, task: str) -> str:
    """Return a SHA-256 of the initial state: all cells, the agent, the mission and the step limit."""
    told = {"task": task, "mission": level.mission, "max_steps": int(level.max_steps)}
    return _sha256({**told, **_room(level)})


def room_hash(level: Level) -> str:
    """Return a SHA-256 of all cells and the agent. Several tasks of one seed start in the same room."""
    return _sha256(_room(level))


def _room(level: Level) -> dict[str, Any]:
    carrying: Any = level.carrying
    return {
        "cells": level.grid.encode().tolist(),
        "agent": [int(level.agent_pos[0]), int(level.agent_pos[1]), int(level.agent_dir)],
        "carrying": None if carrying is None else [carrying.type, carrying.color],
    }


def _sha256(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
