"""`trajkit show`: one episode, to be read."""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli.page import Page
from trajkit.cli.step_text import Shown, number, print_step
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.schema import Episode
    from trajkit.store.dataset import Dataset

_RANGE = re.compile(r"(?P<begin>[0-9]*)(?P<colon>:(?P<end>[0-9]*))?")


@click.command()
@click.argument("store")
@click.argument("episode")
@click.option("--steps", metavar="A:B", help="Print these steps only: A to B-1, or one by its number.")
@click.option("--thoughts", is_flag=True, help="Print what the model thought, too.")
@click.option("--full-prompts", is_flag=True, help="Print every message that the model saw at each step.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, always whole.")
def show(
    store: str, episode: str, steps: str | None, thoughts: bool, full_prompts: bool, as_json: bool
) -> None:
    """Print one episode of STORE: its id, the beginning of it, or its position from 0.

    Each step shows what the agent saw, what it answered, what was done and what came back, and how much it
    counts in training where that is not 1.
    """
    from trajkit.store.dataset import open_dataset

    dataset = open_dataset(store)
    found = dataset.episode(episode)
    wanted = range(found.n_steps) if steps is None else _range(steps, found.n_steps)
    if as_json:
        console.result_json(_json(found, full_prompts))
        return
    page = Page()
    _head(page, found)
    shown = Shown(thoughts=thoughts, full_prompts=full_prompts)
    for step, prompt in zip(found.steps, found.prompts(), strict=True):
        if step.step_index in wanted:
            print_step(page, step, prompt, shown)
    if steps is None:
        _feedback(page, found)
    _hint(page, dataset, store, episode)


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


def _json(episode: Episode, full_prompts: bool) -> dict[str, Any]:
    value = episode.model_dump(mode="json")
    if full_prompts:
        for step, prompt in zip(value["steps"], episode.prompts(), strict=True):
            step["prompt"] = (
                None if prompt is None else [message.model_dump(mode="json") for message in prompt]
            )
    return value


def _head(page: Page, episode: Episode) -> None:
    page.heading(f"episode {episode.episode_id}")
    world = [("environment", episode.env_id), ("task", episode.task), ("seed", episode.seed)]
    for name, value in (*world, ("purpose", episode.purpose), ("outcome", episode.outcome)):
        page.field(name, "unknown" if value is None else str(value), style=_STYLES.get(str(value), ""))
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


def _hint(page: Page, dataset: Dataset, store: str, episode: str) -> None:
    """What to type next, for a person whose screen was too small or who goes on."""
    height = page.n_lines_of_screen
    if height is None or not sys.stderr.isatty():
        return
    typed = shlex.join(["trajkit", "show", store])
    console.talk("")
    if page.n_lines > height:
        console.talk(f"{page.n_lines:,} lines: --steps 0:5 for some, or `| less`")
    n_episodes = dataset.store.manifest.counts.n_episodes
    if episode.isdecimal() and int(episode) + 1 < n_episodes:
        console.talk(f"next of {n_episodes:,}: {typed} {int(episode) + 1}")
