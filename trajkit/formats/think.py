"""Thoughts as text: what a model thought, in `<think>` tags before what it said."""

from __future__ import annotations

import re
from enum import StrEnum

from trajkit.formats.base import Example
from trajkit.schema import Block, Message, TextBlock, ThoughtBlock

_TAGS = re.compile(r"\A<think>\n(.*?)\n</think>\n\n(.*)\Z", re.DOTALL)


class Thoughts(StrEnum):
    """What becomes of thoughts."""

    KEEP = "keep"
    """They are written where the format has a place for them, else they are losses."""
    STRIP = "strip"
    """They are left out, as asked, and counted."""
    THINK_TEXT = "think-text"
    """They are text in `<think>` tags before the answer."""


def think_text(thought: str, text: str = "") -> str:
    """A thought and what follows it as one text."""
    return f"<think>\n{thought}\n</think>\n\n{text}"


def split_think_text(text: str) -> tuple[str | None, str]:
    """The thought at the beginning of a text, None when there is none, and the rest."""
    found = _TAGS.match(text)
    return (found[1], found[2]) if found else (None, text)


def with_thoughts(message: Message, thoughts: Thoughts) -> Message:
    """The message with its thoughts as asked. A thought without a text is not changed into one."""
    if thoughts == Thoughts.KEEP or not any(isinstance(block, ThoughtBlock) for block in message.content):
        return message
    if thoughts == Thoughts.STRIP:
        return message.model_copy(
            update={"content": tuple(b for b in message.content if not isinstance(b, ThoughtBlock))}
        )
    said = [block.text for block in message.content if isinstance(block, ThoughtBlock) and block.text]
    if not said:
        return message
    rest: list[Block] = [
        block for block in message.content if not (isinstance(block, ThoughtBlock) and block.text)
    ]
    thought = "\n".join(said)
    for position, block in enumerate(rest):
        if isinstance(block, TextBlock):
            rest[position] = TextBlock(text=think_text(thought, block.text))
            break
    else:
        rest.insert(0, TextBlock(text=think_text(thought)))
    return message.model_copy(update={"content": tuple(rest)})


def n_thoughts(example: Example) -> int:
    """How many thoughts the messages of an example have."""
    return sum(isinstance(block, ThoughtBlock) for message in example.messages for block in message.content)
