"""TextWorldExpress (Jansen and Côté 2022): eight text games with training, development and test worlds."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from trajkit.environments.base import EnvironmentInfo, Result, Start
from trajkit.errors import RequestError, RolloutError

if TYPE_CHECKING:
    from trajkit.environments.textworld_jvm import Jvm

ENV_ID = "textworld"
GAMES = ("cookingworld", "twc", "coin", "mapreader", "arithmetic", "sorting", "simonsays", "peckingorder")
FOLDS = {"": "train", "-dev": "dev", "-test": "test"}
"""Suffix of a task and the fold that it stands for."""
TASKS = tuple(f"{game}{ending}" for ending in FOLDS for game in GAMES)

_MOST_SEED = 2**31 - 1
_HELP = "help"


class TextWorld:
    """A game of TextWorldExpress in its own Java process.

    Any text is an action: an unknown one takes a step and changes nothing. An action is valid if the game
    lists it as available. The game's gold paths contain some actions that it does not list.

    Args:
        task: One of `TASKS`: the name of a game for its training worlds, with `-dev` or `-test` for others.
        max_steps: Step limit of an episode.
        **parameters: Integer parameters of the game, such as `numLocations` and `numIngredients` of
            cookingworld. Default: the game's own.

    Raises:
        RequestError: There is no such task or parameter.
        MissingExtra: textworld-express is not installed.
        StackError: Java is not installed or does not start.
    """

    env_id = ENV_ID

    def __init__(self, task: str, *, max_steps: int = 100, **parameters: int) -> None:
        if task not in TASKS:
            hint = f"games: {', '.join(GAMES)}; -dev or -test behind one gives its other worlds"
            raise RequestError(f"no task {task!r} in {ENV_ID}", hint=hint)
        if max_steps < 1:
            raise RequestError(f"max_steps={max_steps} is less than a step")
        self.task, self.max_steps = task, max_steps
        game, dash, _ = task.partition("-")
        self._game, self._fold = game, FOLDS[task.removeprefix(game)] if dash else FOLDS[""]
        self._parameters = ",".join(f"{name}={_whole(name, value)}" for name, value in parameters.items())
        self._jvm: Jvm | None = None
        self._jvm = self._begun_jvm()
        self._seed: int | None = None
        self._path: list[str] | None = None
        self._place: int | None = 0
        self._done: list[str] = []
        self._now: dict[str, Any] = {}
        self._is_over = True

    def reset(self, seed: int) -> Start:
        """Start the episode of this seed.

        Args:
            seed: An integer from 0 to 2**31 - 1. TextWorldExpress uses 0 to 999 for training, 10000 to
                10999 for development and 20000 to 20999 for tests.

        Raises:
            RequestError: The seed is outside this range.
        """
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MOST_SEED:
            raise RequestError(
                f"seed {seed!r} of {ENV_ID}", hint=f"seeds are whole numbers from 0 to {_MOST_SEED}"
            )
        jvm = self._begun_jvm()
        self._now = jvm.begin(seed, self._fold)
        self._seed, self._path, self._place, self._done, self._is_over = seed, None, 0, [], False
        mission, observation = jvm.mission(), str(self._now["observation"])
        said = json.dumps([self._game, self._fold, jvm.properties(), mission, observation])
        return Start(mission, observation, hashlib.sha256(said.encode()).hexdigest())

    def step(self, text: str | None) -> Result:
        """Execute an action. Spaces around the text are removed; None is an empty text.

        `help` shows the goal again and counts as a step.

        Raises:
            RolloutError: The episode is over, none was started, or the Java process failed.
        """
        self._playing()
        action = (text or "").strip()
        is_valid = action in self._now["validActions"]
        score = float(self._now["score"])
        self._done.append(action)
        observation = self._act(action)
        terminated = bool(self._now["tasksuccess"] or self._now["taskfailure"])
        truncated = len(self._done) >= self.max_steps
        self._is_over = terminated or truncated
        reward = round(float(self._now["score"]) - score, 9)  # a difference of sums of tenths
        return Result(observation, reward, terminated, truncated, action, is_valid)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the available actions, sorted and unique. Any other text is an action, too."""
        return () if self._is_over else tuple(sorted(set(map(str, self._now["validActions"]))))

    def statistics(self) -> dict[str, float]:
        """Return `progression`, the score from 0 to 1, and `success`, 1 if the goal is reached, else 0."""
        score = min(max(float(self._now.get("score", 0.0)), 0.0), 1.0)
        return {"progression": score, "success": float(bool(self._now.get("tasksuccess")))}

    def expert_action(self) -> str:
        """Return the next action of the game's gold path.

        Actions of the path without an effect are left out. In twc and coin the path differs each time.

        Raises:
            RolloutError: The episode is over, or the agent left the path.
        """
        self._playing()
        if self._path is None:
            self._find_path()
        place = None if self._place is None or self._path is None else self._next_on(self._path, self._place)
        if self._path is None or place is None:
            raise RolloutError(
                f"the expert of {ENV_ID} knows one path, and step {len(self._done)} is not on it",
                hint="play it from the beginning: --policy expert, without slips",
            )
        return self._path[place]

    def close(self) -> None:
        """End the Java process; `reset` starts a new one."""
        if self._jvm is not None:
            self._jvm.close()
        self._jvm, self._is_over = None, True

    def _begun_jvm(self) -> Jvm:
        from trajkit.environments.textworld_jvm import Jvm

        if self._jvm is None:
            self._jvm = Jvm(self._game, self._parameters)
        return self._jvm

    def _playing(self) -> Jvm:
        if self._seed is None:
            raise RolloutError("no episode was begun", hint="call reset with a seed first")
        if self._is_over or self._jvm is None:
            raise RolloutError("the episode is over", hint="reset begins another")
        return self._jvm

    def _act(self, action: str) -> str:
        """Execute an action and advance on the path."""
        jvm = self._playing()
        if self._path is not None and self._place is not None:
            place = self._next_on(self._path, self._place)
            is_on_path = place is not None and self._path[place] == action
            self._place = place + 1 if place is not None and is_on_path else None
        if action == _HELP:  # the game itself does not know it
            return jvm.mission()
        self._now = jvm.step(action)
        return str(self._now["observation"])

    def _next_on(self, path: list[str], place: int) -> int | None:
        """Return the index of the next action of the path that has an effect."""
        legal = self._now["validActions"]
        return next((at for at in range(place, len(path)) if path[at] in legal), None)

    def _find_path(self) -> None:
        """Return the gold path: create the world again with a path, and repeat the actions so far."""
        jvm = self._playing()
        assert self._seed is not None
        self._now = jvm.begin(self._seed, self._fold, with_path=True)
        self._path, self._place = jvm.path(), 0
        for action in self._done:
            self._act(action)


def _whole(name: str, value: object) -> int:
    """Check the value of a parameter; the game would read any other text as some number."""
    try:
        return int(str(value))
    except ValueError as error:
        raise RequestError(f"{name}={value!r} of {ENV_ID} is no whole number") from error


INFO = EnvironmentInfo(env_id=ENV_ID, tasks=TASKS, rule=None, success="success >= 1", make=TextWorld)
