"""`trajkit show`: one episode, to be read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from trajkit.cli import output
from trajkit.cli.page import Page

if TYPE_CHECKING:
    from trajkit.schema import Block, Episode, Message, Transition


@click.command()
@click.argument("store")
@click.argument("episode")
@click.option("--full-prompts", is_flag=True, help="Print every message that the model saw at each step.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(store: str, episode: str, full_prompts: bool, as_json: bool) -> None:
    """Print one episode of STORE: its id, the beginning of it, or its position from 0.

    Each step shows what the agent saw, what it answered, what was done, and what came back.
    """
    from trajkit.store.dataset import open_dataset

    found = open_dataset(store).episode(episode)
    if as_json:
        output.result_json(_json(found, full_prompts))
        return
    page = Page()
    _head(page, found)
    for step, prompt in zip(found.steps, found.prompts(), strict=True):
        _step(page, step, prompt if full_prompts else None)
    _feedback(page, found)


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
        page.field(name, "unknown" if value is None else str(value))
    page.field("reward", _number(episode.total_reward))
    for metric, measured in sorted(episode.metrics.items()):
        page.field(metric, _number(measured))
    page.field("steps", str(episode.n_steps))
    if episode.started_at:
        page.field("started", f"{episode.started_at:%Y-%m-%d %H:%M:%S} UTC")
    if episode.tags:
        page.field("tags", "  ".join(f"{key}={value}" for key, value in sorted(episode.tags.items())))


def _step(page: Page, step: Transition, prompt: Iterable[Message] | None) -> None:
    by = ", ".join(name for name in (step.variant_name, step.model_name) if name)
    page.heading(f"step {step.step_index}{f'  ({by})' if by else ''}")
    for message in prompt or ():
        page.field(f"prompt, {message.role}", _message_text(message), style="dim")
    if step.observation is not None:
        page.field("observation", step.observation, style="cyan")
    elif prompt is None and step.messages:
        page.field(f"message, {step.messages[-1].role}", _message_text(step.messages[-1]), style="cyan")
    if step.completion is not None:
        page.field("answer", _message_text(step.completion), style="green")
    if step.action is not None or step.action_executed is not None:
        page.field("action", _action(step), style="red" if step.action_valid is False else "")
    page.field("reward", _number(step.reward))
    for metric, measured in sorted(step.metrics.items()):
        page.field(metric, _number(measured))
    if step.mask_reason is not None:
        page.field("not learned", step.mask_reason)
    if step.terminated or step.truncated:
        page.field("end", "terminated" if step.terminated else "truncated", style="bold")


def _action(step: Transition) -> str:
    named = step.action if isinstance(step.action, str) else json.dumps(step.action, ensure_ascii=False)
    said = "none" if step.action is None else named
    if step.action_valid is False:
        said = f"{said}, which is not valid"
    if step.action_executed is not None and step.action_executed != step.action:
        said = f"{said}; executed: {step.action_executed}"
    return said


def _feedback(page: Page, episode: Episode) -> None:
    if not episode.feedback:
        return
    page.heading("feedback")
    for item in episode.feedback:
        on = f"inference {item.inference_id}" if item.inference_id else "episode"
        value = item.value if isinstance(item.value, str) else json.dumps(item.value, ensure_ascii=False)
        page.field(f"{item.metric_name} of the {on}, {item.created_at:%Y-%m-%d %H:%M:%S} UTC", value)


def _message_text(message: Message) -> str:
    return "\n".join(_block_text(block) for block in message.content)


def _block_text(block: Block) -> str:
    match block.type:
        case "text":
            return block.text
        case "thought":
            return f"[thought] {block.text or ''}"
        case "tool_call":
            return f"[tool call {block.id}] {block.name}({block.arguments})"
        case "tool_result":
            return f"[tool result {block.id}] {block.name}: {block.result}"
        case "file":
            return f"[file] {block.filename or block.source_url or block.mime_type or 'without a name'}"
        case "unknown":
            return f"[{block.type}] {json.dumps(block.data, ensure_ascii=False)}"


def _number(value: bool | float | None) -> str:
    if value is None:
        return "unknown"
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.6g}"
