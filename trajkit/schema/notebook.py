"""Show an episode in a notebook: messages, actions and results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trajkit._core.output import notebook as html

if TYPE_CHECKING:
    from trajkit.schema.content import Block, Message
    from trajkit.schema.episode import Episode, Transition

_MOST_STEPS = 40
"""Number of shown steps; the others are counted."""


def episode_line(episode: Episode) -> str:
    """Return an episode in a line: world, outcome, reward, steps."""
    world = [str(part) for part in (episode.env_id, episode.task) if part is not None]
    if episode.seed is not None:
        world.append(f"seed {episode.seed}")
    reward = "" if episode.total_reward is None else f", reward {episode.total_reward:.4g}"
    steps = f"{episode.n_steps:,} {'step' if episode.n_steps == 1 else 'steps'}"
    return f"{' '.join(world) or 'unknown world'}: {episode.outcome.value}{reward}, {steps}"


def episode_html(episode: Episode) -> str:
    """Return the conversation as a part of an HTML page, with thoughts folded."""
    return html.framed(_parts(episode))


def _parts(episode: Episode) -> Iterator[str]:
    yield html.title(episode_line(episode), f"episode {episode.episode_id}")
    measured = [f"{name} {_number(value)}" for name, value in sorted(episode.metrics.items())]
    known = [f"purpose {episode.purpose.value}", *measured]
    yield html.facts(known)
    for step in episode.steps[:_MOST_STEPS]:
        yield from _step(step)
    if (n_more := episode.n_steps - _MOST_STEPS) > 0:
        yield html.line(f"… and {n_more:,} {'step' if n_more == 1 else 'steps'} more")
    if episode.feedback:
        rows = [
            (item.metric_name, "step" if item.inference_id else "episode", _number(item.value))
            for item in episode.feedback
        ]
        yield html.folded(f"feedback ({len(rows):,})", html.table(("metric", "of", "value"), rows, n_text=3))


def _step(step: Transition) -> Iterator[str]:
    if step.messages:
        yield html.folded(
            f"step {step.step_index}: new in the prompt ({len(step.messages)})",
            "".join(_message(message) for message in step.messages),
        )
    if step.observation is not None:
        yield f'<section><span class="who">sees</span>{html.block(step.observation)}</section>'
    kind = "bad" if step.action_valid is False else "answer"
    said = "" if step.completion is None else "".join(_block(block) for block in step.completion.content)
    yield f'<section class="{kind}"><span class="who">step {step.step_index}</span>{said}'
    yield f"{html.facts(_facts(step))}</section>"


def _facts(step: Transition) -> Iterator[str]:
    """Yield the action, the reward and metrics, and whether the step is learned."""
    if step.action is not None or step.action_executed is not None:
        action = step.action if isinstance(step.action, str) else json.dumps(step.action, ensure_ascii=False)
        valid = ", which is not valid" if step.action_valid is False else ""
        done = (
            f"; executed: {step.action_executed}" if step.action_executed not in (None, step.action) else ""
        )
        yield f"action {action}{valid}{done}"
    yield "reward unknown" if step.reward is None else f"reward {step.reward:.4g}"
    yield from (f"{name} {_number(value)}" for name, value in sorted(step.metrics.items()))
    if step.mask_reason is not None:
        yield f"not learned: {step.mask_reason}"
    elif step.loss_weight != 1:
        yield f"weight {step.loss_weight:.4g}"
    if step.terminated or step.truncated:
        yield "terminated" if step.terminated else "truncated"


def _message(message: Message) -> str:
    inner = "".join(_block(block) for block in message.content)
    return f'<section><span class="who">{html.name(message.role.value)}</span>{inner}</section>'


def _block(block: Block) -> str:
    match block.type:
        case "text":
            return html.block(block.text)
        case "thought":
            return html.folded("thought", html.block(block.text or ""))
        case "tool_call":
            return f"<p>calls {html.name(block.name)}</p>{html.block(_indented(block.arguments))}"
        case "tool_result":
            return f"<p>{html.name(block.name)} gives</p>{html.block(block.result)}"
        case "file":
            name = block.filename or block.source_url or block.mime_type or "without a name"
            return f"<p>file {html.name(name)}</p>"
        case "unknown":
            return html.block(json.dumps(block.data, ensure_ascii=False, indent=2))


def _indented(arguments: str) -> str:
    """Return JSON indented; text that is not JSON unchanged."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except ValueError:
        return arguments


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
