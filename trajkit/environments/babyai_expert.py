# mypy: disable-error-code="no-untyped-call"
"""The BabyAI expert: minigrid's planner, made robust to actions of others. Import like `babyai_level`."""

from __future__ import annotations

from minigrid.core.actions import Actions
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from trajkit.environments.babyai_level import Level


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
