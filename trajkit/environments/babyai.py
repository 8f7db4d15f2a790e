"""BabyAI as text: five tasks in a small grid world, equal to BALROG's BabyAI seed by seed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trajkit._core.lazy import need
from trajkit.environments.base import ActionRule, EnvironmentInfo, Result, Start
from trajkit.errors import RequestError, RolloutError

if TYPE_CHECKING:
    from trajkit.environments.babyai_level import Expert, Level

ENV_ID = "babyai"
TASKS = ("goto", "pickup", "open", "putnext", "pick_up_seq_go_to")
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""Actions in the order of minigrid's action numbers."""

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
        self._progression = 0.0
        self._is_over = True

    @property
    def max_steps(self) -> int:
        """Step limit of this episode.

        Raises:
            RolloutError: There was no reset yet.
        """
        return int(self._begun().max_steps)

    def reset(self, seed: int) -> Start:
        """Start the episode of this seed.

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
        self._progression, self._is_over = 0.0, False
        return Start(level.mission, observation, state_hash(level, self.task), room_hash(level))

    def step(self, text: str | None) -> Result:
        """Execute an action. The text must match exactly; any other text, or None, means `go forward`.

        Raises:
            RolloutError: The episode is over, or none was started.
        """
        level = self._playing()
        action, is_valid = RULE.resolve(text)
        number = ACTIONS.index(action)
        if self._expert is not None:
            self._expert.advise()  # the planner must see every state, even if its advice is not needed
        outcome = level.act(number)
        if self._expert is not None:
            self._expert.saw(number)
        self._executed.append(number)
        if outcome.reward > 0:
            self._progression = 1.0
        self._is_over = outcome.terminated or outcome.truncated
        return Result(*outcome, action, is_valid)

    def legal_actions(self) -> tuple[str, ...]:
        """Return all six actions. An action without an effect is legal, too."""
        return ACTIONS

    def statistics(self) -> dict[str, float]:
        """Return `progression`: 1 if the mission is accomplished, else 0."""
        return {"progression": self._progression}

    def expert_action(self) -> str:
        """Return the next action of minigrid's planner in the current state.

        If the mission can no longer be accomplished (an opened box is gone), it still returns some action.

        Raises:
            RolloutError: The episode is over, or none was started.
        """
        self._playing()
        if self._expert is None:
            self._expert = self._caught_up_expert()
        return ACTIONS[self._expert.advise()]

    def close(self) -> None:
        """Release the world; `reset` creates a new one."""
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
        """Create the world of the current seed, and return it with the first observation."""
        from trajkit.environments.babyai_level import Level

        level = Level(self.task)
        return level, level.begin(self._seed)

    def _caught_up_expert(self) -> Expert:
        """Create an expert for the current state by replaying the episode from its start."""
        from trajkit.environments.babyai_level import Expert

        self._level, _ = self._new_level()
        expert = Expert(self._level, default=ACTIONS.index(RULE.default))
        for number in self._executed:
            expert.advise()
            self._level.act(number)
            expert.saw(number)
        return expert


INFO = EnvironmentInfo(env_id=ENV_ID, tasks=TASKS, rule=RULE, success="progression >= 1", make=BabyAI)
