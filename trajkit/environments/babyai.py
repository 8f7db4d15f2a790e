"""BabyAI as text: five tasks in a small grid world, equal to BALROG's BabyAI seed by seed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trajkit._core.lazy import need
from trajkit.environments.base import ActionRule, EnvironmentInfo, Result, Start
from trajkit.errors import RequestError, RolloutError

if TYPE_CHECKING:
    from trajkit.environments.babyai_expert import Expert
    from trajkit.environments.babyai_level import Level

ENV_ID = "babyai"
TASKS = ("goto", "pickup", "open", "putnext", "pick_up_seq_go_to")
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""In minigrid's order: an action's place here is its number there."""

RULE = ActionRule(actions=ACTIONS, default="go forward")


class BabyAI:
    """One task of BabyAI.

    Args:
        task: One of `TASKS`.

    Raises:
        RequestError: There is no such task.
        MissingExtra: minigrid is not installed.
    """

    env_id = ENV_ID

    def __init__(self, task: str) -> None:
        if task not in TASKS:
            raise RequestError(f"no task {task!r} in {ENV_ID}", hint=f"tasks: {', '.join(TASKS)}")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # minigrid's renderer greets on stdout
        need("minigrid", extra="babyai")
        self.task = task
        self._level: Level | None = None
        self._expert: Expert | None = None
        self._executed: list[int] = []
        self._seed = 0
        self._n_invalid = 0
        self._progression = 0.0
        self._is_over = True

    @property
    def n_invalid(self) -> int:
        """Answers of this episode that named no action and were carried out as `go forward`."""
        return self._n_invalid

    @property
    def max_steps(self) -> int:
        """Step limit of this episode.

        Raises:
            RolloutError: Nothing was reset yet.
        """
        return int(self._begun().max_steps)

    def reset(self, seed: int) -> Start:
        """Begin the episode of this seed.

        Args:
            seed: Any whole number from 0.

        Raises:
            RequestError: `seed` is negative.
        """
        from trajkit.environments.babyai_level import room_hash, state_hash

        if seed < 0:
            raise RequestError(f"seed {seed} is negative", hint="seeds of babyai are whole numbers from 0")
        self._seed = seed
        level, observation = self._new_level()
        self._level, self._expert = level, None
        self._executed = []
        self._n_invalid, self._progression, self._is_over = 0, 0.0, False
        return Start(level.mission, observation, state_hash(level, self.task), room_hash(level))

    def step(self, text: str | None) -> Result:
        """Carry out an action, compared as exact text; any other text, or None, means `go forward`.

        Raises:
            RolloutError: The episode is over, or none was begun.
        """
        level = self._playing()
        action, is_valid = RULE.resolve(text)
        number = ACTIONS.index(action)
        if self._expert is not None:
            self._expert.advise()  # it must have looked at every state, also at those nobody asked about
        outcome = level.act(number)
        if self._expert is not None:
            self._expert.saw(number)
        self._executed.append(number)
        self._n_invalid += not is_valid
        if outcome.reward > 0:
            self._progression = 1.0
        self._is_over = outcome.terminated or outcome.truncated
        return Result(*outcome, action, is_valid)

    def legal_actions(self) -> tuple[str, ...]:
        """All six actions, always: one that changes nothing is legal too."""
        return ACTIONS

    def statistics(self) -> dict[str, float]:
        """`progression`: 1 when the mission is accomplished, else 0."""
        return {"progression": self._progression}

    def expert_action(self) -> str:
        """Ask minigrid's own planner for its next action from here, whatever was done before.

        When the mission can no longer be accomplished (an opened box is gone), it answers some action still.

        Raises:
            RolloutError: The episode is over, or none was begun.
        """
        self._playing()
        if self._expert is None:
            self._expert = self._caught_up_expert()
        return ACTIONS[self._expert.advise()]

    def close(self) -> None:
        """Let the world go; `reset` makes a new one."""
        self._level = self._expert = None
        self._is_over = True

    def _begun(self) -> Level:
        if self._level is None:
            raise RolloutError("no episode was begun", hint="call reset with a seed first")
        return self._level

    def _playing(self) -> Level:
        level = self._begun()
        if self._is_over:
            raise RolloutError("the episode is over", hint="reset begins another")
        return level

    def _new_level(self) -> tuple[Level, str]:
        """The world of the current seed at its start, and what is seen there."""
        from trajkit.environments.babyai_level import Level

        level = Level(self.task)
        return level, level.begin(self._seed)

    def _caught_up_expert(self) -> Expert:
        """An expert that saw the episode from its start: it is played again, and goes on from the replay."""
        from trajkit.environments.babyai_expert import Expert

        self._level, _ = self._new_level()
        expert = Expert(self._level, default=ACTIONS.index(RULE.default))
        for number in self._executed:
            expert.advise()
            self._level.act(number)
            expert.saw(number)
        return expert


INFO = EnvironmentInfo(env_id=ENV_ID, tasks=TASKS, rule=RULE, success="progression >= 1", make=BabyAI)
