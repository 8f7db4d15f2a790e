"""Show one episode step by step."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import PrivateAttr

from trajkit._core.output.console import talk
from trajkit._core.output.page import Page
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Option, StoreLike
from trajkit.commands.place import store_path
from trajkit.errors import RequestError
from trajkit.schema import Block, Episode, Message, Transition

_RANGE = re.compile(r"(?P<begin>[0-9]*)(?P<colon>:(?P<end>[0-9]*))?")

_LONG = 100
"""Characters of JSON beyond which it takes several lines."""
_MOST_OF_SYSTEM = 300
"""Characters of a system message that are printed; --full-prompts prints it whole."""


class _Shown(NamedTuple):
    """What to show."""

    steps: range | None
    """The steps that are printed; None for all, and the feedback."""
    thoughts: bool
    """Whether to show the thoughts of the model."""
    full_prompts: bool
    """Every message of each prompt, not only what is new."""
    next_command: str | None
    """The command that shows the next episode; None if there is none."""


class EpisodePage(Episode, Result):
    """An episode that prints itself step by step."""

    _shown: _Shown = PrivateAttr()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Episode) and self.__dict__ == other.__dict__

    def to_json(self) -> dict[str, Any]:
        """The whole episode; also the full prompts, if requested."""
        value = self.model_dump(mode="json")
        if self._shown.full_prompts:
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
        if self._shown.next_command is not None:
            talk(self._shown.next_command)

    def _write(self, page: Page) -> None:
        _head(page, self)
        shown = self._shown
        for step, prompt in zip(self.steps, self.prompts(), strict=True):
            if shown.steps is None or step.step_index in shown.steps:
                _print_step(page, step, prompt, shown)
        if shown.steps is None:
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
    training if that is not 1. In Python the result is the episode; its `prompts()` are the messages that the
    model saw.

    Args:
        store: The store.
        episode: Its id, the beginning of its id, or its position from 0.
        steps: Print only these steps: A to B-1, or one by its number.
        thoughts: Also print the thoughts of the model.
        full_prompts: Print every message that the model saw at each step.

    Raises:
        NothingMatched: There is no such episode.
        RequestError: Several ids begin this way, or there are no such steps.

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
    page._shown = _Shown(chosen, thoughts, full_prompts, next_command)
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
        page.field("reward", _number(episode.total_reward))
    for metric, measured in sorted(episode.metrics.items()):
        page.field(metric, _number(measured))
    page.field("steps", str(episode.n_steps))
    if episode.started_at:
        page.field("started", f"{episode.started_at:%Y-%m-%d %H:%M:%S} UTC")
    if episode.tags:
        page.field("tags", "  ".join(f"{key}={value}" for key, value in sorted(episode.tags.items())))


_STYLES = {"success": "green", "failure": "red", "error": "red", "truncated": "yellow"}
"""Style by outcome."""


def _feedback(page: Page, episode: Episode) -> None:
    if not episode.feedback:
        return
    page.heading("feedback")
    for item in episode.feedback:
        on = f"inference {item.inference_id}" if item.inference_id else "episode"
        value = item.value if isinstance(item.value, str) else json.dumps(item.value, ensure_ascii=False)
        page.field(f"{item.metric_name} of the {on}, {item.created_at:%Y-%m-%d %H:%M:%S} UTC", value)


def _print_step(page: Page, step: Transition, prompt: Sequence[Message] | None, shown: _Shown) -> None:
    """Print the observation, the answer, the action, the result and the weight."""
    by = ", ".join(name for name in (step.agent_name, step.variant_name, step.model_name) if name)
    page.heading(f"step {step.step_index}{f'  ({by})' if by else ''}")
    if shown.full_prompts:
        for message in prompt or ():
            page.field(f"prompt, {message.role}", _message_text(message, shown), style="dim")
    if step.observation is not None:
        page.field("observation", step.observation, style="cyan")
    elif not shown.full_prompts:
        for name, text in _news(step, shown):
            page.field(name, text, style="cyan")
    if step.completion is not None:
        page.field("answer", _message_text(step.completion, shown), style="green")
    if step.action is not None or step.action_executed is not None:
        page.field("action", _action(step), style="red" if step.action_valid is False else "")
    if step.demonstration is not None:
        page.field("better answer", _json_text(step.demonstration))
    _came_back(page, step)


def _came_back(page: Page, step: Transition) -> None:
    if step.reward is not None:
        page.field("reward", _number(step.reward))
    for metric, measured in sorted(step.metrics.items()):
        page.field(metric, _number(measured))
    if step.mask_reason is not None:
        page.field("not learned", step.mask_reason, style="yellow")
    elif step.loss_weight != 1:
        page.field("weight", _number(step.loss_weight), style="yellow")
    if spent := ", ".join(_spent(step)):
        page.field("spent", spent, style="dim")
    if step.terminated or step.truncated:
        page.field("end", "terminated" if step.terminated else "truncated", style="bold")


def _spent(step: Transition) -> Iterator[str]:
    if step.n_input_tokens is not None:
        yield f"{step.n_input_tokens:,} tokens in"
    if step.n_output_tokens is not None:
        yield f"{step.n_output_tokens:,} out"
    if step.latency_s is not None:
        yield f"{step.latency_s:.3g} s"
    if step.cost_usd:
        yield f"{step.cost_usd:.6f} USD"
    if step.cached:
        yield "from the cache"
    if step.finish_reason == "length":
        yield "cut off at the limit"


def _news(step: Transition, shown: _Shown) -> Iterator[tuple[str, str]]:
    """The messages that are new at this step, if no environment gave an observation."""
    messages = step.messages or ()
    # a prompt that was rewritten at each step: only its end is new
    is_whole_again = step.step_index > 0 and step.n_prompt_kept == 0
    for message in messages[-1:] if is_whole_again else messages:
        text = _message_text(message, shown)
        if message.role == "system" and len(text) > _MOST_OF_SYSTEM:
            text = f"{text[:_MOST_OF_SYSTEM]}… ({len(text):,} characters; --full-prompts prints them)"
        yield f"message, {message.role}", text


def _action(step: Transition) -> str:
    said = "none" if step.action is None else _json_text(step.action)
    if step.action_valid is False:
        said = f"{said}, which is not valid"
    if step.action_executed is not None and step.action_executed != step.action:
        said = f"{said}; executed: {step.action_executed}"
    return said


def _message_text(message: Message, shown: _Shown) -> str:
    """The text of a message, block by block."""
    return "\n".join(_block_text(block, shown) for block in message.content)


def _block_text(block: Block, shown: _Shown) -> str:
    match block.type:
        case "text":
            return _set_out(block.text)
        case "thought" if not block.text:
            return "[thought] hidden by the provider"
        case "thought" if shown.thoughts:
            return f"[thought] {block.text}"
        case "thought":
            return f"[thought: {len(block.text or ''):,} characters, --thoughts]"
        case "tool_call":
            return f"[tool call {block.id}] {block.name}({_set_out(block.arguments)})"
        case "tool_result":
            result = _set_out(block.result)
            margin = "\n" if "\n" in result else " "
            return f"[tool result {block.id}] {block.name}:{margin}{result}"
        case "file":
            return f"[file] {block.filename or block.source_url or block.mime_type or 'without a name'}"
        case "unknown":
            return f"[{block.type}] {_json_text(block.data)}"


def _set_out(text: str) -> str:
    """A text; long JSON has one line per value."""
    if len(text) <= _LONG or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return _indented(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _json_text(value: object) -> str:
    if isinstance(value, str):
        return value
    said = json.dumps(value, ensure_ascii=False)
    return said if len(said) <= _LONG else _indented(value)


def _indented(value: object) -> str:
    return "\n".join(_lines(value))


def _lines(value: object, margin: str = "") -> list[str]:
    """JSON with one line per value; short lists and objects stay on one."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(margin) + len(flat) <= _LONG:
        return [flat]
    inner, found = f"{margin}  ", list[str]()
    for head, item in _parts(value):
        first, *others = _lines(item, inner)
        found += [f"{inner}{head}{first}", *others]
        found[-1] += ","
    found[-1] = found[-1].removesuffix(",")
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return [begin, *found, f"{margin}{end}"]


def _parts(value: dict[str, object] | list[object]) -> Iterator[tuple[str, object]]:
    """What stands before each value, and the value."""
    if isinstance(value, list):
        yield from (("", item) for item in value)
    else:
        yield from ((f"{json.dumps(name, ensure_ascii=False)}: ", item) for name, item in value.items())


def _number(value: bool | float | None) -> str:
    """A number as people read it; `unknown` for none."""
    if value is None:
        return "unknown"
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.6g}"
