"""Wrap a user's own agent as a policy. `docs/agents.md` describes the agents that are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import JsonValue, TypeAdapter, ValidationError

from trajkit.environments.guard import raised
from trajkit.environments.quiet import divert, quiet, restore
from trajkit.rollouts.agents.load import Player
from trajkit.rollouts.agents.turn import Calls, Models, Opening, Turn
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Choice, Situation, StepFailed
from trajkit.rollouts.running.attempt import of_environment
from trajkit.schema import Feedback
from trajkit.schema.base import Json

__all__ = ["MAX_ANSWER_BYTES", "AgentPolicy", "Opening", "Turn"]

MAX_ANSWER_BYTES = 1_000_000
"""An agent's answer of more bytes, as UTF-8, is not an action and is not kept."""

_JSON: TypeAdapter[JsonValue] = TypeAdapter(Json)
_log = logging.getLogger(__name__)


@dataclass
class _Playing:
    """An episode in progress."""

    player: Player
    memory: dict[str, Any]
    has_inferred: bool = False


class AgentPolicy:
    """An agent that plays many episodes concurrently. Must be closed.

    Args:
        make: Makes the player of an episode: a shared one, or a new one each time.
        plan: Seeds, history and names.
        models: The models that the agent may call.
    """

    def __init__(self, make: Callable[[], Player], plan: Plan, models: Models) -> None:
        self._make = make
        self._plan = plan
        self._models = models
        self._playing: dict[str, _Playing] = {}
        self._has_begun = False

    async def act(self, situation: Situation) -> Choice:
        """Request an action from the agent; its model calls become part of the step.

        Raises:
            StepFailed: The agent failed, or a service that it called.
            LimitReached: The run has reached a limit.
            TrajkitError: The agent called something that this run does not have.
        """
        calls = Calls(self._models, situation, self._plan)
        legal_actions = of_environment(situation.environment.legal_actions)
        error: BaseException | None = None
        said = None
        try:
            said = await self._asked(situation, legal_actions, calls)
            await calls.close()
        except asyncio.CancelledError as cancelled:
            calls.cancel()
            if _is_being_cancelled():
                raise
            error = cancelled
        except (Exception, SystemExit) as failed:  # noqa: BLE001 -- what an agent raises becomes a record
            calls.cancel()
            error = failed
        if error is None and calls.failure is None:
            return _choice(said, calls)
        await self.leave(situation.episode_id)
        raise _failure(error, calls)

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Give the agent the result of the episode, and the gateway, too, if it was called in the episode.

        Raises:
            Faulty: The agent failed, or the gateway did.
        """
        playing = self._playing.pop(episode_id, None)
        if playing is None:
            return ()
        if playing.player.end is not None:
            try:
                await _run(playing.player.end, dict(metrics))
            except (Exception, SystemExit) as error:
                raise Faulty(_agent_fault(error)) from error
        return await self._models.log(episode_id, metrics, tags) if playing.has_inferred else ()

    async def leave(self, episode_id: str) -> None:
        """Drop an unfinished episode, and notify the agent."""
        playing = self._playing.pop(episode_id, None)
        if playing is None or playing.player.end is None:
            return
        try:
            await _run(playing.player.end, None)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the episode is an error already
            _log.warning("the agent failed at the end of episode %s: %s", episode_id, raised(error))

    async def close(self) -> None:
        """Close the connections to models."""
        if self._has_begun:
            self._has_begun = False
            restore()
        await self._models.close()

    async def _asked(self, situation: Situation, legal_actions: tuple[str, ...], calls: Calls) -> Any:
        playing = self._playing.get(situation.episode_id) or await self._begun(situation)
        turn = Turn(situation, legal_actions, self._plan, calls, playing.memory)
        try:
            return await _run(playing.player.act, turn if playing.player.wants_turn else turn.observation)
        finally:
            playing.has_inferred |= calls.has_inferred

    async def _begun(self, situation: Situation) -> _Playing:
        if not self._has_begun:
            self._has_begun = True
            divert()  # a task that an agent leaves running prints to stderr, too
        player = await _run(self._make)
        playing = self._playing[situation.episode_id] = _Playing(player, {})
        if player.begin is not None:
            opening = Opening(
                episode_id=situation.episode_id,
                env_id=self._plan.env_name or self._plan.env_id,
                task=situation.job.task,
                seed=situation.job.seed,
                mission=situation.mission,
                memory=playing.memory,
            )
            await _run(player.begin, opening)
        return playing


def _choice(said: Any, calls: Calls) -> Choice:
    action, note = _read(said)
    *before, last = calls.answers or (None,)
    return Choice(action, last, tuple(answer for answer in before if answer is not None), note)


def _read(said: Any) -> tuple[JsonValue, str | None]:
    """Return the action in an agent's answer, and the reason if there is none."""
    if said is None:
        return None, "the agent answered None"
    if isinstance(said, str):
        said = str.__str__(said)  # for a member of an enumeration, its value
    try:
        value = _JSON.validate_python(said)
        n_bytes = len(json.dumps(value, ensure_ascii=False).encode())
    except (ValidationError, RecursionError):
        return None, f"the agent answered {type(said).__name__} that is not JSON"
    if n_bytes > MAX_ANSWER_BYTES:
        return None, f"the agent answered {n_bytes:,} bytes; more than {MAX_ANSWER_BYTES:,} are not kept"
    return value, None


def _failure(error: BaseException | None, calls: Calls) -> Exception:
    """Return the exception that ends the step: a service's failure counts more than the agent's exception."""
    failure = calls.failure
    if isinstance(failure, Faulty):
        return StepFailed(failure.fault, calls.answers)
    if failure is not None:
        return failure
    assert error is not None
    failed = StepFailed(_agent_fault(error), calls.answers)
    failed.__cause__ = error
    return failed


def _agent_fault(error: BaseException) -> Fault:
    return Fault(FaultKind.AGENT, shown(raised(error)), is_lasting=True)


def _is_being_cancelled() -> bool:
    """Check whether the run itself is being cancelled, and not only a task of the agent."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _run(call: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function and return its result. A synchronous function runs in its own thread.

    The context variables of the caller are set in it. What it prints goes to stderr.
    """
    with quiet():
        if _is_async(call):
            return await call(*arguments)
        said = await _in_thread(functools.partial(call, *arguments))
        return await said if inspect.isawaitable(said) else said


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


class _Outcome(NamedTuple):
    """A call in a thread; not a future's own exception, which cannot be a StopIteration."""

    result: Any = None
    error: BaseException | None = None


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run a call in a thread that does not keep the interpreter from ending, and return its result."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    done: asyncio.Future[_Outcome] = loop.create_future()

    def settle(outcome: _Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome = _Outcome(context.run(call))
        except BaseException as error:  # noqa: BLE001 -- raised again where it is awaited
            outcome = _Outcome(error=error)
        with contextlib.suppress(RuntimeError):  # the run was stopped: the result is no longer awaited
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name="trajkit-agent", daemon=True).start()
    outcome = await done
    if isinstance(outcome.error, StopIteration):
        raise RuntimeError("it raised StopIteration") from outcome.error
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
