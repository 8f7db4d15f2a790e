"""How far a rollout is: a bar on a terminal, a line at the start and at the end elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from trajkit._core.console import count, plural, talk
from trajkit.schema import Outcome

if TYPE_CHECKING:
    from trajkit.rollouts.record import Played


class Progress:
    """Counts episodes and steps as they come.

    Args:
        n_episodes: How many there will be.
        heading: Said at the start.
        n_before: How many of them were done before.
        is_quiet: Say and draw nothing.
        has_bar: Draw a bar on a terminal; not where a person types into it.
    """

    def __init__(
        self,
        n_episodes: int,
        heading: str,
        *,
        n_before: int = 0,
        is_quiet: bool = False,
        has_bar: bool = True,
    ) -> None:
        self._has_bar = has_bar
        self._heading = heading
        self._n_episodes = n_episodes
        self._n_before = n_before
        self._is_quiet = is_quiet
        self._n_ended = self._n_steps = self._n_successes = self._n_errors = 0
        self._began = time.monotonic()
        self._bar = Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=n_episodes, completed=n_before)

    def step(self) -> None:
        """One step was played."""
        self._n_steps += 1
        if self._n_steps % 10 == 0:
            self._bar.update(self._task, description=self._so_far())

    def add(self, played: Played) -> None:
        """One episode ended."""
        self._n_ended += 1
        self._n_successes += played.outcome == Outcome.SUCCESS
        self._n_errors += played.fault is not None
        self._bar.update(self._task, advance=1, description=self._so_far())

    def _so_far(self) -> str:
        rate = self._n_steps / max(time.monotonic() - self._began, 1e-9)
        parts = [plural(self._n_successes, "success", "successes"), plural(self._n_errors, "error")]
        return "  ".join([*parts, f"{rate:,.0f} steps/s"])

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._is_quiet:
            return self
        talk(self._heading)
        if self._has_bar and self._bar.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()  # one that never started would print an empty line
        if self._is_quiet:
            return
        seconds = time.monotonic() - self._began
        done = f"{count(self._n_before + self._n_ended)} of {plural(self._n_episodes, 'episode')}"
        talk(f"{done}  {plural(self._n_steps, 'step')}  {self._so_far()}  {seconds:,.1f} s")
