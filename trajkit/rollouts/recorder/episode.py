"""An episode during its recording: calls within its block belong to it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from trajkit._core.ids import uuid7
from trajkit.errors import RequestError
from trajkit.rollouts.recorder.log import Log
from trajkit.rollouts.recorder.values import flag, json_value, number, text
from trajkit.schema import Outcome

P = ParamSpec("P")
R = TypeVar("R")


class Scope(NamedTuple):
    """The episode and agent of calls."""

    episode: RecordedEpisode
    agent: str | None


_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("trajkit_recorder_scopes", default=())
"""Open scopes of all recorders, the innermost last. Tasks inherit them; threads get them by `bind`."""


def current_scope(log: Log) -> Scope | None:
    """Return the innermost open scope of one recorder; None outside any."""
    return next((scope for scope in reversed(_scopes.get()) if scope.episode._log is log), None)


class RecordedEpisode:
    """One episode. Created by `Recorder.episode`; for one `with` or `async with` block, or as a decorator.

    Inside the block (and in the asyncio tasks that it starts) every call of the recorder's clients is a step
    of this episode. An exception ends it as `error` and is raised further.
    """

    def __init__(self, log: Log, facts: Mapping[str, Any]) -> None:
        self._log = log
        self._facts = dict(facts)
        self.episode_id = uuid7()
        """Its id in the store, a UUIDv7."""
        self._last: str | None = None
        self._last_by_agent: dict[str | None, str] = {}
        self._is_begun = False
        self._is_ended = False

    def __enter__(self) -> Self:
        if self._is_begun:
            raise RequestError(
                f"episode {self.episode_id} was already begun", hint="recorder.episode(...) for each"
            )
        self._is_begun = True
        scope = current_scope(self._log)
        begun = {"kind": "begin", "episode": self.episode_id, "at": _now(), **self._facts}
        if scope is not None:
            begun["parent"] = scope.episode.episode_id
        with self._log.guard("note"):
            self._log.write(begun)
        self._enter(None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(None)
        if self._is_ended:
            return
        self._is_ended = True
        with self._log.guard("note"):
            ended = {"kind": "end", "episode": self.episode_id, "at": _now()}
            if error is not None:
                # only the class: a message may contain a key
                ended["error"] = type(error).__name__
            self._log.write(ended)
            self._log.forget(self.episode_id)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, which may be `async`: each call is an episode like this one.

        Raises:
            RequestError: It is a generator, which would run when the episode is over.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise RequestError(
                f"{function.__name__} is a generator: it would run when its episode is over",
                hint="with recorder.episode(...) inside it",
            )
        return _within(function, lambda: RecordedEpisode(self._log, self._facts))

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """Bind a function to this episode, for a thread pool: its calls belong to this episode.

        New threads do not inherit the block that started them: `pool.map(e.bind(work), items)`.
        """
        return _within(function, lambda: Agent(self, None))

    def agent(self, name: str) -> Agent:
        """Name one of several agents: `with e.agent("planner"): ...` marks the steps of its calls.

        Raises:
            RequestError: The name is empty.
        """
        if not text(name, "an agent's name"):
            raise RequestError(f"an agent's name is text, not {name!r}")
        return Agent(self, name)

    def reward(self, value: float) -> None:
        """Record the reward of the last step; several for one step add up.

        Raises:
            RequestError: It is not a finite number.
        """
        self._note("reward", number(value, "a reward"), step=self._last)

    def step(
        self,
        *,
        observation: str | None = None,
        action: Any = None,
        action_executed: str | None = None,
        action_valid: bool | None = None,
        reward: float | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
        legal_actions: Sequence[str] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the result of the last step from the environment. Omitted values stay unchanged.

        Args:
            observation: The observation before the action, when it is not the last message.
            action: The action in the answer, when it is not its tool calls or its field `action`.
            action_executed: The action that the environment executed.
            action_valid: Whether the answer named an action of the environment.
            reward: The reward, as for `reward`.
            terminated: Whether the environment reached its own end.
            truncated: Whether the episode was cut off.
            legal_actions: The actions that were open to the agent.
            info: Further facts from the environment.

        Raises:
            RequestError: A value is not of its type.
        """
        said = {
            "observation": text(observation, "an observation"),
            "action": json_value(action, "an action"),
            "action_executed": text(action_executed, "an executed action"),
            "action_valid": flag(action_valid, "action_valid"),
            "terminated": flag(terminated, "terminated"),
            "truncated": flag(truncated, "truncated"),
            "legal_actions": None
            if legal_actions is None
            else [text(one, "a legal action") for one in legal_actions],
            "info": None if info is None else json_value(dict(info), "info"),
        }
        total = None if reward is None else number(reward, "a reward")
        if facts := {name: value for name, value in said.items() if value is not None}:
            self._note("step", facts, step=self._last)
        if total is not None:
            self._note("reward", total, step=self._last)

    def metric(self, name: str, value: float | bool, *, on_step: bool = False) -> None:
        """Record a metric of the episode, or of its last step: a number or boolean. A later one replaces it.

        Raises:
            RequestError: The name or the value is invalid, or the metric had the other kind before.
        """
        plain = value.item() if hasattr(value, "item") else value
        checked = plain if isinstance(plain, bool) else number(plain, f"metric {name!r}")
        if not isinstance(name, str) or not name:
            raise RequestError(f"a metric's name is text, not {name!r}")
        json_value(name, "a metric's name")
        if why := self._log.other_metric(name, type(checked), on_step=on_step):
            raise RequestError(why, hint="use one spelling and one kind per metric in a store")
        self._note("metric", checked, step=self._last if on_step else None, name=name, is_on_step=on_step)

    def comment(self, remark: str, *, on_step: bool = False) -> None:
        """Record a comment on the episode, or on its last step.

        Raises:
            RequestError: It is not text.
        """
        self._note(
            "comment", text(remark, "a comment"), step=self._last if on_step else None, is_on_step=on_step
        )

    def demonstration(self, answer: Any) -> None:
        """Record the answer that the last step should have given: text, or JSON.

        Raises:
            RequestError: It is not JSON.
        """
        self._note("demonstration", json_value(answer, "a demonstration"), step=self._last)

    def outcome(self, outcome: str) -> None:
        """Record the outcome: `success`, `failure`, `truncated`, `error` or `unknown`.

        Without it, the metric `success`, or `progression >= 1`, decides whether it was a success.

        Raises:
            RequestError: It is none of these.
        """
        if outcome not in list(Outcome):
            raise RequestError(f"there is no outcome {outcome!r}", hint=", ".join(Outcome))
        self._note("outcome", str(outcome), step=None, is_on_step=False)

    def _answered(self, call_id: str, agent: str | None) -> None:
        self._last = call_id
        self._last_by_agent[agent] = call_id

    def _note(
        self,
        what: str,
        value: Any,
        *,
        step: str | None,
        name: str | None = None,
        is_on_step: bool = True,
    ) -> None:
        with self._log.guard("note"):
            if is_on_step and step is None:
                raise ValueError(f"a {what} came before any call of episode {self.episode_id} was answered")
            note = {
                "kind": "note",
                "episode": self.episode_id,
                "id": uuid7(),
                "at": _now(),
                "what": what,
                "value": value,
                "step": step,
                "name": name,
                "is_on_step": is_on_step,
            }
            self._log.write(note)

    def _enter(self, agent: str | None) -> None:
        _scopes.set((*_scopes.get(), Scope(self, agent)))

    def _leave(self, agent: str | None) -> None:
        """Remove this object's innermost scope only: blocks may end in another order or context."""
        scopes = list(_scopes.get())
        for position in reversed(range(len(scopes))):
            if scopes[position] == Scope(self, agent):
                del scopes[position]
                break
        _scopes.set(tuple(scopes))


class Agent:
    """One of several agents of an episode. Created by `RecordedEpisode.agent`; may be entered many times."""

    def __init__(self, episode: RecordedEpisode, name: str | None) -> None:
        self._episode = episode
        self.name = name
        """Name in the column `agent_name` of its steps."""

    def __enter__(self) -> Self:
        self._episode._enter(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        self._episode._leave(self.name)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """Bind a function to this agent, for a thread pool."""
        return _within(function, lambda: self)

    def reward(self, value: float) -> None:
        """Record the reward of this agent's last step; several for one step add up.

        Raises:
            RequestError: It is not a finite number.
        """
        last = self._episode._last_by_agent.get(self.name)
        self._episode._note("reward", number(value, "a reward"), step=last)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _within(function: Callable[P, R], block: Callable[[], RecordedEpisode | Agent]) -> Callable[P, R]:
    """Return a function, which may be `async`, of which each call runs in a block."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def within_task(*args: P.args, **kwargs: P.kwargs) -> Any:
            with block():
                return await function(*args, **kwargs)

        return within_task  # type: ignore[return-value]  # an async function is one that returns an awaitable

    @functools.wraps(function)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        with block():
            return function(*args, **kwargs)

    return within
