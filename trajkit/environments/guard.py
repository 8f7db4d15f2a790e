"""Wrap a user's environment as an `Environment`: fill in defaults, check results, name failures.

Every failure of the user's code becomes a `RolloutError` that names the environment, task, seed and step. So
a broken environment can be distinguished from a broken service and from a bad agent.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import math
import numbers
import re
import reprlib
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from trajkit.environments.base import ActionRule, Environment, EnvironmentInfo, Result, Start
from trajkit.environments.quiet import enter, leave
from trajkit.errors import RolloutError, TrajkitError
from trajkit.schema.success import parse_success

TEXT_HASH = "text:"
"""Prefix of an initial-state hash that was computed from texts, because the environment has none."""

RETURN_NAME = "episode_return"
RESERVED_NAMES = (RETURN_NAME, "comment", "demonstration")
"""Reserved metric names: the sum of the rewards, and two names of the gateway."""

METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Valid names of statistics, which the gateway and SQL accept without quoting."""

_log = logging.getLogger(__name__)
_REMEMBERED_SEEDS = 65_536
_SHOWN = 300
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_TRAJKIT = str(Path(__file__).parents[1])
_FOREIGN = (
    _TRAJKIT,
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
"""Folders whose code does not belong to the environment."""


class Memory:
    """The initial states of the first seeds, to notice a seed that gives another state later."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, int], str] = {}

    def differs(self, task: str, seed: int, state_hash: str) -> bool:
        """Return whether this seed had another initial state before."""
        if len(self._hashes) < _REMEMBERED_SEEDS:
            return self._hashes.setdefault((task, seed), state_hash) != state_hash
        return self._hashes.get((task, seed), state_hash) != state_hash


def guarded(inner: Any, info: EnvironmentInfo, task: str, memory: Memory) -> Environment:
    """A wrapper that makes a user's environment keep the protocol.

    Args:
        inner: The user's environment, with `reset`, `step` and optional methods.
        info: Name, rule and condition for success.
        task: The task of the environment.
        memory: Initial states, shared by all environments of one rollout.

    Raises:
        RolloutError: The environment cannot be played at all.
    """
    offers_expert = callable(getattr(inner, "expert_action", None))
    return (GuardedExpert if offers_expert else Guarded)(inner, info, task, memory)


class Guarded:
    """A user's environment; see `guarded`."""

    def __init__(self, inner: Any, info: EnvironmentInfo, task: str, memory: Memory) -> None:
        self.env_id = info.env_id
        self.task = task
        self._inner = inner
        self._rule: ActionRule | None = info.rule
        self._success = info.success
        self._memory = memory
        self._offers_legal = callable(getattr(inner, "legal_actions", None))
        self._offers_statistics = callable(getattr(inner, "statistics", None))
        self._legal: tuple[str, ...] | None = None
        self._names: frozenset[str] = frozenset()
        self._seed: int | None = None
        self._n_steps = 0
        self._is_over = True
        self.close_error: RolloutError | None = None
        """Why the environment could not be closed."""
        for name in ("reset", "step"):
            if not callable(getattr(inner, name, None)):
                raise RolloutError(
                    f"{self._where()}: {type(inner).__name__} has no method {name!r}",
                    hint="an environment has at least reset(seed) and step(text)",
                )

    @property
    def max_steps(self) -> int | None:
        """Step limit of this episode; None if the environment states none."""
        limit = self._call("max_steps", getattr, self._inner, "max_steps", None)
        return int(limit) if isinstance(limit, numbers.Integral) and int(limit) > 0 else None

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Numbers in info that are not statistics; only adapters have them."""
        return tuple(sorted(getattr(self._inner, "unlisted", ())))

    def reset(self, seed: int) -> Start:
        """Begin the episode of this seed.

        Raises:
            RolloutError: The episode cannot be started, or the seed had another initial state before.
        """
        self._seed, self._n_steps, self._legal, self._is_over = seed, 0, None, True
        if self._inner is None:
            self._fail("the environment is closed", hint="make another")
        start = self._start(self._call("reset", self._inner.reset, seed))
        if self._memory.differs(self.task, seed, start.initial_state_hash):
            self._fail(
                "the same seed began a different world before",
                hint="draw everything from random.Random(seed); `trajkit check-env` shows what differs",
            )
        self._is_over = False
        scores = self._scores()
        self._names = frozenset(scores)
        metric = parse_success(self._success).metric
        if metric not in scores and metric != RETURN_NAME:
            self._fail(
                f"success is {self._success!r}, and there is no statistic {metric!r}",
                hint=f"statistics: {', '.join((*scores, RETURN_NAME))}",
            )
        return start

    def step(self, text: str | None) -> Result:
        """Execute an action.

        Raises:
            RolloutError: The environment failed, the episode is over, or none was started.
        """
        if self._is_over:
            self._refuse_step()
        if self._rule is not None:
            said, is_valid = self._rule.resolve(text)
            value = self._call("step", self._inner.step, said)
        else:
            said = text or ""
            is_valid = text in self.legal_actions() if self._offers_legal else bool(said.strip())
            value = self._call("step", self._inner.step, text)
        result = self._result(value, said, is_valid)
        self._n_steps += 1
        self._legal = None
        self._is_over = result.terminated or result.truncated
        return result

    def legal_actions(self) -> tuple[str, ...]:
        """Return the available actions; empty if any text is an action or the episode is over.

        Raises:
            RolloutError: The environment failed, or returned an invalid list.
        """
        if self._is_over or not self._offers_legal:
            return () if self._rule is None else self._rule.actions
        if self._legal is None:
            value = self._call("legal_actions", self._inner.legal_actions)
            if not isinstance(value, tuple | list) or not value:
                self._fail(f"legal_actions returned {_shown(value)}, not a tuple with actions")
            self._legal = tuple(self._text(action, "a legal action") for action in value)
            if not all(action.strip() for action in self._legal) or len(set(self._legal)) != len(self._legal):
                self._fail(f"legal_actions has an empty or duplicate action: {_shown(value)}")
        return self._legal

    def statistics(self) -> dict[str, float]:
        """Return the scores of the episode so far. The names stay the same during an episode.

        Raises:
            RolloutError: The environment failed, or a score is not finite or has an invalid name.
        """
        scores = self._scores()
        if self._seed is not None and scores.keys() != self._names:
            changed = ", ".join(sorted(scores.keys() ^ self._names))
            self._fail(
                f"statistics are not those after the reset: {changed}",
                hint="give each statistic a number from the reset on",
            )
        return scores

    def close(self) -> None:
        """Release all resources. A second call does nothing.

        A failure is logged and kept in `close_error`; it does not change any episode.
        """
        inner, self._inner = self._inner, None
        self._is_over, self._seed = True, None
        if inner is not None and callable(getattr(inner, "close", None)):
            try:
                self._call("close", inner.close)
            except RolloutError as error:
                self.close_error = error
                _log.warning("%s", error)

    def _refuse_step(self) -> NoReturn:
        if self._seed is None:
            raise RolloutError(f"{self._where()}: no episode was begun", hint="call reset with a seed first")
        self._fail("the episode is over", hint="reset begins another")

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run the user's code and send its output to stderr."""
        token = enter()
        try:
            return function(*arguments)
        except TrajkitError as error:
            self._is_over = True
            if not isinstance(error, RolloutError):
                raise
            raise RolloutError(f"{self._where()}: {name}: {error.message}", hint=error.hint) from error
        except (Exception, SystemExit) as error:
            self._is_over = True
            raise RolloutError(f"{self._where()}: {name} raised {raised(error)}") from error
        finally:
            leave(token)

    def _start(self, value: Any) -> Start:
        if not isinstance(value, tuple) or not 2 <= len(value) <= 4:
            self._wrong("reset", value, "Start, or mission and first observation")
        start = Start(*value)
        mission = self._text(start.mission, "the mission")
        observation = self._text(start.observation, "the observation")
        if not mission.strip():
            self._fail("the mission is empty", hint="describe the agent's goal as text")
        state_hash = self._text(start.initial_state_hash, "the initial-state hash")
        room_hash = self._text(start.room_hash, "the room hash")
        state_hash = state_hash or _text_hash(self.task, mission, observation)
        return Start(mission, observation, state_hash, room_hash)

    def _result(self, value: Any, said: str, is_valid: bool) -> Result:
        if not isinstance(value, tuple) or len(value) not in (4, 6):
            self._wrong("step", value, "Result, or observation, reward, terminated and truncated")
        observation, reward, terminated, truncated = value[:4]
        executed, judged = value[4:] if len(value) == 6 else ("", True)
        executed = self._text(executed, "the executed action")
        if self._rule is not None and executed not in ("", said):
            self._fail(f"step({said!r}) executed {executed!r}; its action_rule says {said!r}")
        if executed and self._rule is None:
            said, is_valid = executed, self._flag(judged, "action_valid")
        return Result(
            self._text(observation, "the observation"),
            reward if type(reward) is float and math.isfinite(reward) else self._number(reward, "the reward"),
            self._flag(terminated, "terminated"),
            self._flag(truncated, "truncated"),
            said,
            is_valid,
        )

    def _scores(self) -> dict[str, float]:
        if not self._offers_statistics:
            return {}
        value = self._call("statistics", self._inner.statistics)
        if not isinstance(value, Mapping):
            self._fail(f"statistics returned {_shown(value)}, not a dict of numbers by name")
        for name in value:
            if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
                self._fail(
                    f"the statistic {_shown(name)} cannot be the name of a metric",
                    hint="letters, digits and underscores, at most 64, no digit first",
                )
            if name in RESERVED_NAMES:
                self._fail(f"the statistic {name!r} has a reserved name")
        return {name: self._number(score, f"the statistic {name}") for name, score in value.items()}

    def _text(self, value: Any, what: str) -> str:
        if not isinstance(value, str):
            self._fail(f"{what} is {_shown(value)}, not text")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                self._fail(f"{what} has half of a surrogate pair at character {error.start}: no valid text")
        return value if type(value) is str else str(value)

    def _number(self, value: Any, what: str) -> float:
        """Accept NumPy numbers as well."""
        if not isinstance(value, str | bytes | type(None)):
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if math.isfinite(number):
                return number
        self._fail(f"{what} is {_shown(value)}, not a finite number")

    def _flag(self, value: Any, what: str) -> bool:
        """Accept NumPy booleans as well."""
        if value is True or value is False:
            return value
        if is_numpy_flag(value):
            return bool(value)
        self._fail(f"{what} is {_shown(value)}, not True or False")

    def _wrong(self, name: str, value: Any, wanted: str) -> NoReturn:
        hint = None
        if inspect.iscoroutine(value):
            value.close()
            hint = "an environment is synchronous: write def, not async def"
        elif name == "step" and isinstance(value, tuple) and len(value) == 5:
            hint = "an environment of Gymnasium is a subclass of gymnasium.Env"
        self._fail(f"{name} returned {_shown(value)}, not {wanted}", hint=hint)

    def _fail(self, message: str, *, hint: str | None = None) -> NoReturn:
        self._is_over = True
        raise RolloutError(f"{self._where()}: {message}", hint=hint)

    def _where(self) -> str:
        seed = "" if self._seed is None else f" seed {self._seed} step {self._n_steps}"
        return f"{self.env_id} task {self.task!r}{seed}"


class GuardedExpert(Guarded):
    """A user's environment with an expert."""

    def expert_action(self) -> str:
        """Return the expert's next action.

        Raises:
            RolloutError: The environment failed, the episode is over, or none was started.
        """
        if self._is_over:
            self._refuse_step()
        return self._text(self._call("expert_action", self._inner.expert_action), "the expert's action")


def _text_hash(task: str, mission: str, observation: str) -> str:
    seen = json.dumps([task, mission, observation], ensure_ascii=False)
    return TEXT_HASH + hashlib.sha256(seen.encode()).hexdigest()


def is_numpy_flag(value: object) -> bool:
    """Whether the value is a NumPy boolean, which is neither a bool nor a number in Python."""
    return type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")


def raised(error: BaseException) -> str:
    """Describe an exception of the user's code in one line, with file and line."""
    text = " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
    return (text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…") + place(error)


def place(error: BaseException) -> str:
    """Return the file and line in brackets where the user's code raised; empty if it was not reached."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    outside = [(Path(name).name, line) for name, line in frames if not name.startswith(_TRAJKIT)]
    own = [(Path(name).name, line) for name, line in frames if not name.startswith(_FOREIGN)]
    return " ({}:{})".format(*(own or outside)[-1]) if outside else ""


def _shown(value: Any) -> str:
    """Return the type and the beginning of a value, for a message."""
    return "None" if value is None else f"the {type(value).__name__} {_REPR.repr(value)}"
