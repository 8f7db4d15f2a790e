"""Convert an episode to one list of messages, and such a list to an episode.

Most formats are a conversation. By default each assistant message answers all messages before it. A `Cut` for
each step tells which messages belong to it if an episode differs from that: its prompts are rewritten, an
assistant message is only context, or a step has no answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.formats.reading.document import BadDocument, shown
from trajkit.schema import Episode, Message, Role, TextBlock, ToolCallBlock, ToolResultBlock
from trajkit.schema.base import JsonObject
from trajkit.schema.episode import kept


class Cut(NamedTuple):
    """The messages of a step in the list."""

    n_new: int
    """Number of messages of its prompt that no earlier step has."""
    has_answer: bool = True
    """Whether its answer follows them."""


class Turns(NamedTuple):
    """An episode as a list of messages."""

    messages: tuple[Message, ...]
    """The new messages of each step, then its answer."""
    cuts: tuple[Cut, ...]
    """One per step."""


def turns_of(episode: Episode) -> Turns:
    """Return the messages of an episode, each stored one once."""
    messages: list[Message] = []
    cuts = []
    for step in episode.steps:
        new = step.messages or ()
        messages.extend(new)
        if step.completion is not None:
            messages.append(step.completion)
        cuts.append(Cut(len(new), step.completion is not None))
    return Turns(tuple(messages), tuple(cuts))


def steps_of(messages: Sequence[Message], cuts: Sequence[Cut] | None = None) -> list[dict[str, Any]]:
    """Return the fields of the steps of a conversation.

    Args:
        messages: The messages, in order.
        cuts: Which messages belong to which step; None if each assistant message is an answer.

    Returns:
        One per answer. Messages after the last answer are in no step.
    """
    steps: list[dict[str, Any]] = []
    start = n_before = 0
    for n_new, has_answer in plain_cuts(messages) if cuts is None else cuts:
        new = tuple(messages[start : start + n_new])
        start += n_new
        answer = messages[start] if has_answer else None
        start += has_answer
        steps.append(
            {
                "step_index": len(steps),
                "n_prompt_kept": n_before,
                "messages": new,
                "completion": answer,
                "observation": observation_of(new),
                "action": action_of(answer),
            }
        )
        n_before += n_new + has_answer
    return steps


def n_answered(messages: Sequence[Message]) -> int:
    """Return the number of messages up to the last answer."""
    return max((n for n, one in enumerate(messages, 1) if one.role == Role.ASSISTANT), default=0)


def answers_at(cuts: Sequence[Cut]) -> list[int | None]:
    """Return the position of each step's answer among the messages; None if it has none."""
    positions: list[int | None] = []
    at = 0
    for cut in cuts:
        at += cut.n_new
        positions.append(at if cut.has_answer else None)
        at += cut.has_answer
    return positions


def plain_cuts(messages: Sequence[Message]) -> tuple[Cut, ...]:
    """Return the cuts of a conversation in which each assistant message is an answer."""
    cuts = []
    n_new = 0
    for one in messages:
        if one.role == Role.ASSISTANT:
            cuts.append(Cut(n_new))
            n_new = 0
        else:
            n_new += 1
    return tuple(cuts)


def read_cuts(value: Any, messages: Sequence[Message]) -> tuple[Cut, ...] | None:
    """Return the cuts of a conversation.

    Raises:
        BadDocument: They do not fit these messages.
    """
    if value is None:
        return None
    try:
        cuts = tuple(Cut(int(n_new), bool(has_answer)) for n_new, has_answer in value)
    except (TypeError, ValueError):
        raise BadDocument("not a list of cuts", "trajkit.cuts", shown(value)) from None
    if sum(cut.n_new + cut.has_answer for cut in cuts) != len(messages) or any(cut.n_new < 0 for cut in cuts):
        raise BadDocument(f"the cuts are not those of {len(messages)} messages", "trajkit.cuts", shown(value))
    return cuts


def observation_of(messages: Sequence[Message]) -> str | None:
    """Return the texts of the latest user and tool messages; None without any."""
    texts: list[str] = []
    for one in reversed(messages):
        if one.role not in (Role.USER, Role.TOOL):
            break
        results = [block.result for block in one.content if isinstance(block, ToolResultBlock)]
        others = [block.text for block in one.content if isinstance(block, TextBlock)]
        texts.append("\n".join([*results, *others]))
    return "\n".join(reversed(texts)) or None


def action_of(answer: Message | None) -> list[JsonObject] | None:
    """Return the tool calls of an answer; None without any."""
    calls = [block for block in answer.content if isinstance(block, ToolCallBlock)] if answer else []
    return [{"name": call.name, "arguments": arguments_value(call.arguments)} for call in calls] or None


def arguments_value(text: str) -> Any:
    """Return arguments as a JSON value; if they are not valid JSON, the text itself."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def steps_of_calls(
    calls: Iterable[tuple[Sequence[Message] | None, Message | None, Mapping[str, Any]]],
) -> Iterator[dict[str, Any]]:
    """Yield the fields of the steps of model calls: of each prompt only what is new is stored.

    Args:
        calls: In order, each with its whole prompt (None when unknown), its answer, and more fields.
    """
    before: tuple[Message, ...] = ()
    answer: Message | None = None
    for index, (sent, said, facts) in enumerate(calls):
        prompt = None if sent is None else tuple(sent)
        n = 0 if prompt is None else kept(before, answer, prompt)
        new = None if prompt is None else prompt[n:]
        yield {
            "step_index": index,
            "n_prompt_kept": n,
            "messages": new,
            "completion": said,
            "observation": observation_of(new or ()),
            "action": action_of(said),
            **facts,
        }
        before, answer = prompt or (), said
