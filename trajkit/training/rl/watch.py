"""What each iteration of a training by playing is reported to have played, and whether it can go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from trajkit.errors import TrainingError
from trajkit.schema.base import JsonObject
from trajkit.training.rl.experience import Lived, success_of
from trajkit.training.rl.recipe import PlayedRecipe

_MOST_SILENT = 5
"""After so many iterations in a row without a difference between attempts nothing is going to change."""


class Watch:
    """Tells what was played, and stops a training that has nothing to learn from.

    Args:
        recipe: How it is learned.
        tell: Is given what happens, as events.
    """

    def __init__(self, recipe: PlayedRecipe, tell: Callable[[JsonObject], None]) -> None:
        self._recipe, self._tell = recipe, tell
        self._n_silent = 0
        self._began = 0.0
        self.report: dict[str, Any] = {}
        """What is known of the iteration."""

    def begin(self) -> None:
        """Start the clock of an iteration, before it is played."""
        self._began = time.monotonic()

    def played(self, iteration: int, lived: Lived) -> None:
        """Begin the report of an iteration that was played, and tell what is odd about it.

        Args:
            iteration: From 0.
            lived: What was played.
        """
        self.report = {
            "iteration": iteration + 1,
            **success_of(lived.traces)._asdict(),
            "n_strange": lived.n_strange,
            "left": dict(lived.left),
            "played_s": time.monotonic() - self._began,
        }
        for reason, number in lived.left.items():
            self.say(f"iteration {iteration + 1}: {number} episodes are not learned: {reason}")
        if lived.n_strange:
            self.say(
                f"iteration {iteration + 1}: in {lived.n_strange} of {self._recipe.n_groups} groups"
                " the environment is not deterministic: the same seed and actions had different results"
            )

    def say(self, message: str) -> None:
        """Report a line to the process that waits for the training."""
        self._tell({"kind": "message", "message": message})

    def check(self, n_learned: int, n_stale: int = 0) -> None:
        """Stop where nothing was learned for long.

        Args:
            n_learned: Steps that this iteration learns.
            n_stale: Steps that it leaves out because they are too old.

        Raises:
            TrainingError: The latest iterations had nothing to learn from.
        """
        self._n_silent = 0 if n_learned else self._n_silent + 1
        if self._n_silent < _MOST_SILENT:
            return
        others = [f"{n:,} episodes: {reason}" for reason, n in self.report["left"].items()]
        if n_stale:
            others.append(f"{n_stale:,} steps are too stale")
        same = f"all attempts at each seed had the same return ({self.report['episode_return']:.3g})"
        why = f"{'; '.join(others) or same}: there is nothing to learn from"
        raise TrainingError(
            f"in {_MOST_SILENT} iterations up to {self.report['iteration']} {why}",
            hint="easier tasks, a higher --temperature, more --num-generations, or a reward that"
            " tells more; `sft local` first gives a model something to begin with",
        )

    def end(self, learning_rate: float) -> JsonObject:
        """Tell the report of an iteration that was learned."""
        report = self.report
        report["seconds"] = time.monotonic() - self._began
        report["steps_per_s"] = report["n_steps"] / report["seconds"]
        report["learning_rate"] = learning_rate
        self._tell({"kind": "iteration", **report})
        return report
