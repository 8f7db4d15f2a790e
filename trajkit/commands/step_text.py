"""One step as `trajkit show` prints it: what was seen, answered, done, what came back, what it counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trajkit._core.output.page import Page
    from trajkit.schema import Block, Message, Transition

_LONG = 100
"""Characters of JSON beyond which it is set out over several lines."""
_MOST_OF_SYSTEM = 300
"""Characters of a system message that are printed; --full-prompts prints it whole."""


class Shown(NamedTuple):
    """What a reader wants to see."""

    thoughts: bool
    """What the model thought, too."""
    full_prompts: bool
    """Every message of each prompt, not only what is new."""


def print_step(page: Page, step: Transition, prompt: Sequence[Message] | None, shown: Shown) -> None:
    """Print a step.

    Args:
        page: Where.
        step: The step.
        prompt: The messages that the model saw; None when unknown.
        shown: What of it.
    """
    by = ", ".join(name for name in (step.agent_name, step.variant_name, step.model_name) if name)
    page.heading(f"step {step.step_index}{f'  ({by})' if by else ''}")
    if shown.full_prompts:
        for message in prompt or ():
            page.field(f"prompt, {message.role}", message_text(message, shown), style="dim")
    if step.observation is not None:
        page.field("observation", step.observation, style="cyan")
    elif not shown.full_prompts:
        for name, text in _news(step, shown):
            page.field(name, text, style="cyan")
    if step.completion is not None:
        page.field("answer", message_text(step.completion, shown), style="green")
    if step.action is not None or step.action_executed is not None:
        page.field("action", _action(step), style="red" if step.action_valid is False else "")
    if step.demonstration is not None:
        page.field("better answer", _json_text(step.demonstration))
    _came_back(page, step)


def _came_back(page: Page, step: Transition) -> None:
    if step.reward is not None:
        page.field("reward", number(step.reward))
    for metric, measured in sorted(step.metrics.items()):
        page.field(metric, number(measured))
    if step.mask_reason is not None:
        page.field("not learned", step.mask_reason, style="yellow")
    elif step.loss_weight != 1:
        page.field("weight", number(step.loss_weight), style="yellow")
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


def _news(step: Transition, shown: Shown) -> Iterator[tuple[str, str]]:
    """The messages that are new at this step, where no environment said what it shows."""
    messages = step.messages or ()
    # a prompt that was written anew each time: only its end is news
    is_whole_again = step.step_index > 0 and step.n_prompt_kept == 0
    for message in messages[-1:] if is_whole_again else messages:
        text = message_text(message, shown)
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


def message_text(message: Message, shown: Shown) -> str:
    """All that a message says, block by block."""
    return "\n".join(_block_text(block, shown) for block in message.content)


def _block_text(block: Block, shown: Shown) -> str:
    match block.type:
        case "text":
            return _set_out(block.text)
        case "thought":
            return _thought(block.text, shown)
        case "tool_call":
            return f"[tool call {block.id}] {block.name}({_set_out(block.arguments)})"
        case "tool_result":
            result = _set_out(block.result)
            return f"[tool result {block.id}] {block.name}:{_below_or_beside(result)}"
        case "file":
            return f"[file] {block.filename or block.source_url or block.mime_type or 'without a name'}"
        case "unknown":
            return f"[{block.type}] {_json_text(block.data)}"


def _thought(text: str | None, shown: Shown) -> str:
    if not text:
        return "[thought] not told by the provider"
    return f"[thought] {text}" if shown.thoughts else f"[thought: {len(text):,} characters, --thoughts]"


def _below_or_beside(text: str) -> str:
    return f"\n{text}" if "\n" in text else f" {text}"


def _set_out(text: str) -> str:
    """A text; one that is long JSON with a line for each value."""
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
    """JSON with a line for each value; short lists and objects stay on one."""
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


def number(value: bool | float | None) -> str:
    """A number as people read it; `unknown` for none."""
    if value is None:
        return "unknown"
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.6g}"
