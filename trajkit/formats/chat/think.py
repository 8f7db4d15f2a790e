"""Write thoughts as text: in `<think>` tags before the answer."""

from __future__ import annotations

import re
from enum import StrEnum

from trajkit.schema import Block, Message, TextBlock, ThoughtBlock

_TAGS = re.compile(r"\A<think>\n(.*?)\n</think>\n\n(.*)\Z", re.DOTALL)


class Thoughts(StrEnum):
    """What happens to thoughts."""

    KEEP = "keep"
    """They are written if the format has a field for them, else they are losses."""
    STRIP = "strip"
    """They are left out, as asked, and counted."""
    THINK_TEXT = "think-text"
    """They become text in `<think>` tags before the answer."""


def think_text(thought: str, text: str = "") -> str:
    """Return a thought and the text after it as one text."""
    return f"<think>\n{thought}\n</think>\n\n{text}"


def split_think_text(text: str) -> tuple[str | None, str]:
    """Return the thought at the beginning of a text, None without one, and the rest."""
    found = _TAGS.match(text)
    return (found[1], found[2]) if found else (None, text)


def with_thoughts(message: Message, thoughts: Thoughts) -> Message:
    """Return the message with its thoughts as asked. A thought without a text stays a thought."""
    if thoughts == Thoughts.KEEP or not any(isinstance(block, ThoughtBlock) for block in message.content):
        return message
    if thoughts == Thoughts.STRIP:
        return message.model_copy(
            update={"content": tuple(b for b in message.content if not isinstance(b, ThoughtBlock))}
        )
    thoughts_of = [block.text for block in message.content if isinstance(block, ThoughtBlock) and block.text]
    if not thoughts_of:
        return message
    rest: list[Block] = [
        block for block in message.content if not (isinstance(block, ThoughtBlock) and block.text)
    ]
    thought = "\n".join(thoughts_of)
    for position, block in enumerate(rest):
        if isinstance(block, TextBlock):
            rest[position] = TextBlock(text=think_text(thought, block.text))
            break
    else:
        rest.insert(0, TextBlock(text=think_text(thought)))
    return message.model_copy(update={"content": tuple(rest)})
