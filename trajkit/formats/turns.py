"""An episode as one list of messages, and such a list as an episode.

Most formats are a conversation. Read without further word, each message of the assistant answers all that
came before. Where an episode is otherwise (its prompts are written anew, an answer of the assistant is only
context, a step has no answer), `Cuts` says which messages belong to which step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from trajkit.formats.document import BadDocument, shown
from trajkit.schema import Episode, Message, Role, TextBlock, ToolCallBlock, ToolResultBlock
from trajkit.schema.base import JsonObject


class Cut(NamedTuple):
    """The messages of a step in the list."""

    n_new: int
    """Those of its prompt that no step before has."""
    has_answer: bool = True
    """Whether its answer follows."""


class Turns(NamedTuple):
    """An episode as a list of messages."""

    messages: tuple[Message, ...]
    """The new messages of each step, then its answer."""
    cuts: tuple[Cut, ...]
    """One per step."""

    @property
    def is_plain(self) -> bool:
        """Whether each message of the assistant is the answer of a step, and each step has one."""
        return self.cuts == plain_cuts(self.messages)


def turns_of(episode: Episode) -> Turns:
    """The messages of an episode, each that is stored once."""
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
    """The fields of the steps of a conversation.

    Args:
        messages: What was said, in order.
        cuts: Which messages belong to which step; None when each message of the assistant is an answer.

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
    """How many messages there are up to the last answer."""
    return max((n for n, one in enumerate(messages, 1) if one.role == Role.ASSISTANT), default=0)


def answers_at(cuts: Sequence[Cut]) -> list[int | None]:
    """The position of each step's answer among the messages; None where it has none."""
    positions: list[int | None] = []
    at = 0
    for cut in cuts:
        at += cut.n_new
        positions.append(at if cut.has_answer else None)
        at += cut.has_answer
    return positions


def plain_cuts(messages: Sequence[Message]) -> tuple[Cut, ...]:
    """The cuts of a conversation in which each message of the assistant is an answer."""
    cuts = []
    n_new = 0
    for one in messages:
        if one.role == Role.ASSISTANT:
            cuts.append(Cut(n_new))
            n_new = 0
        else:
            n_new += 1
    return tuple(cuts)


def cuts_value(turns: Turns) -> list[list[Any]] | None:
    """The cuts as JSON; None where they need not be said."""
    return None if turns.is_plain else [[n_new, has_answer] for n_new, has_answer in turns.cuts]


def read_cuts(value: Any, messages: Sequence[Message]) -> tuple[Cut, ...] | None:
    """The cuts of a conversation.

    Raises:
        BadDocument: They are not those of these messages.
    """
    if value is None:
        return None
    try:
        cuts = tuple(Cut(int(n_new), bool(has_answer)) for n_new, has_answer in value)
    except (TypeError, ValueError):
        raise BadDocument("no list of cuts", "trajkit.cuts", shown(value)) from None
    if sum(cut.n_new + cut.has_answer for cut in cuts) != len(messages) or any(cut.n_new < 0 for cut in cuts):
        raise BadDocument(f"the cuts are not those of {len(messages)} messages", "trajkit.cuts", shown(value))
    return cuts


def observation_of(messages: Sequence[Message]) -> str | None:
    """What came last from outside: the texts of the user and of the tools; None when there is none."""
    texts: list[str] = []
    for one in reversed(messages):
        if one.role not in (Role.USER, Role.TOOL):
            break
        results = [block.result for block in one.content if isinstance(block, ToolResultBlock)]
        said = [block.text for block in one.content if isinstance(block, TextBlock)]
        texts.append("\n".join([*results, *said]))
    return "\n".join(reversed(texts)) or None


def action_of(answer: Message | None) -> list[JsonObject] | None:
    """The tools that an answer calls; None when it calls none."""
    calls = [block for block in answer.content if isinstance(block, ToolCallBlock)] if answer else []
    return [{"name": call.name, "arguments": arguments_value(call.arguments)} for call in calls] or None


def arguments_value(text: str) -> Any:
    """Arguments as the JSON that they are; those that are none as the text."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
