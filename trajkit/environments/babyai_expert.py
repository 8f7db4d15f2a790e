# mypy: disable-error-code="no-untyped-call"
"""The expert of BabyAI: minigrid's planner, kept on its feet when others act. Import like `babyai_level`."""

from __future__ import annotations

from minigrid.core.actions import Actions
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from trajkit.environments.babyai_level import Level


class Expert:
    """minigrid's planner, told what was really done, and replaced by a fresh one when it loses the thread.

    Args:
        level: The world, in its present state.
        default: Number of the action to advise when there is nothing left to plan.
    """

    def __init__(self, level: Level, *, default: int) -> None:
        self._level = level
        self._default = default
        self._bot = BabyAIBot(level)
        self._last: int | None = None
        self._advice: int | None = None

    def saw(self, action: int) -> None:
        """Note that this action was carried out. `advise` must have been asked about the state before it."""
        self._last, self._advice = action, None

    def advise(self) -> int:
        """Number of the action the planner would take now; asking again changes nothing."""
        if self._advice is None:
            advice = self._replan(self._last)
            if advice is None:
                self._bot = BabyAIBot(self._level)
                advice = self._replan(None)
            self._advice = self._default if advice is None or advice == Actions.done else advice
        return self._advice

    def _replan(self, last: int | None) -> int | None:
        """The planner's next action; None when it cannot go on from here.

        It assumes things, by `assert` and without, that another player's actions can break.
        """
        try:
            return int(self._bot.replan(last))
        except (DisappearedBoxError, AssertionError, AttributeError, TypeError, IndexError):
            return None
