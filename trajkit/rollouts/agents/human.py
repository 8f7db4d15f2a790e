"""Use a person as a policy: the terminal shows what an agent would see, and the person types the action."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence

from trajkit._core.outside import visible
from trajkit.errors import RequestError
from trajkit.rollouts.policies import Choice, Situation
from trajkit.rollouts.running.limits import LimitReached
from trajkit.schema import Feedback

QUIT, HELP = "q", "?"
_PROMPT = "action> "
_SHORT = 12
"""Maximum number of actions listed at every step."""


class Stopped(LimitReached):
    """The player stopped: the run ends cleanly, and the current episode does not count."""

    def __init__(self) -> None:
        super().__init__(QUIT, "the player stopped")

    def __str__(self) -> str:
        return self.reached


class Human:
    """Prompts the person at the terminal for every action, on stderr. One episode at a time.

    Raises:
        RequestError: stdin is not a terminal.
    """

    def __init__(self) -> None:
        if sys.stdin is None or not sys.stdin.isatty():
            raise RequestError("the policy human needs a terminal for input", hint="do not redirect stdin")
        self._keyboard = _Keyboard(sys.stdin.fileno(), sys.stdin.encoding)
        self._episode_id: str | None = None

    async def act(self, situation: Situation) -> Choice:
        """Read an action: its number or its text.

        Raises:
            Stopped: The person typed `q`, or ended the input.
        """
        actions = situation.environment.legal_actions()
        if situation.episode_id != self._episode_id:
            self._episode_id = situation.episode_id
            _say(_heading(situation))
        _say("\n".join([*_looks(situation), "", *_short_menu(actions)]))
        while True:
            sys.stderr.write(_PROMPT)
            sys.stderr.flush()
            typed = await self._keyboard.line()
            if typed is None or (typed == QUIT and QUIT not in actions):
                _say("")
                raise Stopped
            if typed == HELP and HELP not in actions:
                _say("\n".join([f"Mission: {situation.mission}", *_menu(actions), *_help(actions)]))
            elif (action := _meant(typed, actions)) is not None:
                return Choice(action)
            elif typed:
                _say(f"{typed!r} is not one of the actions; {HELP} shows them")

    async def conclude(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Print the result; nothing is logged."""
        _say("\nThe episode is over: " + ", ".join(f"{name} {value:g}" for name, value in metrics.items()))
        return ()


class _Keyboard:
    """Reads typed lines in its own thread, so that other tasks continue.

    It reads the descriptor instead of `sys.stdin`, whose lock would keep the interpreter from ending.
    """

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_read = False

    async def line(self) -> str | None:
        """Return the next line without surrounding spaces; None when the input has ended."""
        if not self._is_read:
            self._is_read = True
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._read, args=(loop,), name="trajkit-keyboard", daemon=True).start()
        return await self._lines.get()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        pending = b""
        with contextlib.suppress(RuntimeError):  # the run is over, and its loop closed
            while chunk := self._chunk():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    text = line.decode(self._encoding, errors="replace").strip()
                    loop.call_soon_threadsafe(self._lines.put_nowait, text)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, 4096)
        except OSError:  # the terminal is gone
            return b""


def _say(text: str) -> None:
    sys.stderr.write(f"{visible(text, is_line=False)}\n")
    sys.stderr.flush()


def _heading(situation: Situation) -> str:
    job = situation.job
    where = f"{situation.environment.env_id}, task {job.task}, seed {job.seed}"
    return f"\n{where}\nMission: {situation.mission}\n({HELP} for help, {QUIT} to stop)"


def _looks(situation: Situation) -> list[str]:
    """Return the text to show: the result of the previous action, then the observation."""
    lines = [f"\nStep {situation.step_index + 1}"]
    if situation.past and not situation.past[-1].action_valid:
        lines.append(f"That is not an action here; executed: {situation.past[-1].action_executed}")
    return [*lines, situation.observation]


def _short_menu(actions: Sequence[str]) -> list[str]:
    return _menu(actions) if len(actions) <= _SHORT else [f"{len(actions)} actions; {HELP} shows them"]


def _menu(actions: Sequence[str]) -> list[str]:
    return [f"{number:3}  {action}" for number, action in enumerate(actions, 1)]


def _help(actions: Sequence[str]) -> list[str]:
    how = "the number of an action, or its text" if actions else "any text; it is your action"
    return [f"Type {how}, and Enter.", f"{QUIT} stops: this episode does not count, those before do."]


def _meant(typed: str, actions: Sequence[str]) -> str | None:
    """Return the typed action; None when the text names none."""
    if not actions:
        return typed or None
    if typed in actions:
        return typed
    number = int(typed) if typed.isascii() and typed.isdigit() else 0
    return actions[number - 1] if 1 <= number <= len(actions) else None
