"""Show one episode step by step."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from typing import Annotated, Any, NamedTuple

from pydantic import PrivateAttr

from trajkit._core.output.console import talk
from trajkit._core.output.page import Page
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Option, StoreLike
from trajkit.commands.place import store_path
from trajkit.commands.step_text import Shown, number, print_step
from trajkit.errors import RequestError
from trajkit.schema import Episode

_RANGE = re.compile(r"(?P<begin>[0-9]*)(?P<colon>:(?P<end>[0-9]*))?")


class _View(NamedTuple):
    steps: range | None
    """The steps that are printed; None for all, and the feedback."""
    shown: Shown
    next_command: str | None
    """What shows the next episode; None where there is none."""


class EpisodePage(Episode, Result):
    """An episode that prints itself step by step."""

    _view: _View = PrivateAttr()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Episode) and self.__dict__ == other.__dict__

    def to_json(self) -> dict[str, Any]:
        """The whole episode; the full prompts too, where they were asked for."""
        value = self.model_dump(mode="json")
        if self._view.shown.full_prompts:
            for step, prompt in zip(value["steps"], self.prompts(), strict=True):
                step["prompt"] = (
                    None if prompt is None else [message.model_dump(mode="json") for message in prompt]
                )
        return value

    def __str__(self) -> str:
        file = io.StringIO()
        self._write(Page(file))
        return file.getvalue().removesuffix("\n")

    def print_text(self) -> None:
        """Print it on stdout; on a terminal in colour, and then the command to type next."""
        page = Page(sys.stdout)
        self._write(page)
        height = page.n_lines_of_screen
        if height is None or not sys.stderr.isatty():
            return
        talk("")
        if page.n_lines > height:
            talk(f"{page.n_lines:,} lines: --steps 0:5 for some, or `| less`")
        if self._view.next_command is not None:
            talk(self._view.next_command)

    def _write(self, page: Page) -> None:
        _head(page, self)
        view = self._view
        for step, prompt in zip(self.steps, self.prompts(), strict=True):
            if view.steps is None or step.step_index in view.steps:
                print_step(page, step, prompt, view.shown)
        if view.steps is None:
            _feedback(page, self)


def show(
    store: StoreLike,
    episode: str | int,
    *,
    steps: Annotated[str | None, Option(metavar="A:B")] = None,
    thoughts: bool = False,
    full_prompts: bool = False,
) -> EpisodePage:
    """Show one episode step by step.

    Each step shows what the agent saw, its answer, the action, the reward and the end, and its weight in
    training where that is not 1. In Python the result is the episode; its `prompts()` are the messages that
    the model saw.

    Args:
        store: The store.
        episode: Its id, the beginning of its id, or its position from 0.
        steps: Print these steps only: A to B-1, or one by its number.
        thoughts: Print the thoughts of the model, too.
        full_prompts: Print every message that the model saw at each step.

    Raises:
        NothingMatched: There is no such episode.
        RequestError: Several episodes begin so, or there are no such steps.

    Example:
        trajkit show sample:babyai 0 --steps 0:5
    """
    from trajkit.store.dataset import Dataset, open_dataset

    dataset = store if isinstance(store, Dataset) else open_dataset(store_path(store))
    found = dataset.episode(str(episode))
    n_episodes, position = dataset.store.manifest.counts.n_episodes, str(episode)
    next_command = None
    if position.isdecimal() and int(position) + 1 < n_episodes:
        path = str(dataset.store.path if isinstance(store, Dataset) else store_path(store))
        typed = shlex.join(["trajkit", "show", path, str(int(position) + 1)])
        next_command = f"next of {n_episodes:,}: {typed}"
    page = EpisodePage.model_construct(found.model_fields_set, **found.__dict__)
    chosen = None if steps is None else _range(steps, found.n_steps)
    page._view = _View(chosen, Shown(thoughts=thoughts, full_prompts=full_prompts), next_command)
    return page


def _range(text: str, n_steps: int) -> range:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise RequestError(
            f"--steps {text} is neither a range nor a step", hint="0:5 is 0 to 4; 3 is that one"
        )
    begin = int(found["begin"] or 0)
    end = begin + 1 if found["colon"] is None else int(found["end"] or n_steps)
    if not (chosen := range(begin, min(end, n_steps))):
        raise RequestError(f"--steps {text} names none of the {n_steps} steps", hint=f"0:{n_steps} is all")
    return chosen


def _head(page: Page, episode: Episode) -> None:
    page.heading(f"episode {episode.episode_id}")
    world = [("environment", episode.env_id), ("task", episode.task), ("seed", episode.seed)]
    if all(value is None for _, value in world):  # of traffic, which has no world
        world = []
    for name, value in (*world, ("purpose", episode.purpose), ("outcome", episode.outcome)):
        page.field(name, "unknown" if value is None else str(value), style=_STYLES.get(str(value), ""))
    if world or episode.total_reward is not None:
        page.field("reward", number(episode.total_reward))
    for metric, measured in sorted(episode.metrics.items()):
        page.field(metric, number(measured))
    page.field("steps", str(episode.n_steps))
    if episode.started_at:
        page.field("started", f"{episode.started_at:%Y-%m-%d %H:%M:%S} UTC")
    if episode.tags:
        page.field("tags", "  ".join(f"{key}={value}" for key, value in sorted(episode.tags.items())))


_STYLES = {"success": "green", "failure": "red", "error": "red", "truncated": "yellow"}
"""Of the outcomes."""


def _feedback(page: Page, episode: Episode) -> None:
    if not episode.feedback:
        return
    page.heading("feedback")
    for item in episode.feedback:
        on = f"inference {item.inference_id}" if item.inference_id else "episode"
        value = item.value if isinstance(item.value, str) else json.dumps(item.value, ensure_ascii=False)
        page.field(f"{item.metric_name} of the {on}, {item.created_at:%Y-%m-%d %H:%M:%S} UTC", value)
