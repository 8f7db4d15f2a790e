"""What OpenAI's fine-tuning service takes in a row, and which calls have no result.

From the row schema of the `manual_spec` branch of openai/openai-openapi, and from refusals seen in the
wild, such as `contains an extra "weight"` and `message contains an invalid token: <|fim_suffix|>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MIN_ROWS = 10
"""`Training file has 7 example(s), but must have at least 10 examples`."""

ROW_KEYS = frozenset({"messages", "tools", "parallel_tool_calls"})
"""What a row may say."""
MESSAGE_KEYS = {
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "weight", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
"""What a message of each role may say."""
FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a function may be called."""
SPECIAL_TOKEN = re.compile(
    r"<\|(?:endoftext|endofprompt|fim_prefix|fim_middle|fim_suffix|im_start|im_end|im_sep)\|>"
)
"""`message contains an invalid token: <|fim_suffix|>`."""


class Slip(NamedTuple):
    """A call or a result that services refuse for want of its partner."""

    kind: str
    """What is wrong, in words of which there are few."""
    message: int
    """Position of the message."""
    call: int | None
    """Position among the calls of that message; None for a result."""
    call_id: str
    """The id that has no partner, or two."""


def slips(messages: Sequence[Mapping[str, Any]]) -> Iterator[Slip]:
    """Every call but those of the last answer is followed at once by its result; every result has its call.

    Args:
        messages: As they are written; what has no readable id is passed over.
    """
    waiting: dict[str, Slip] = {}
    for position, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if isinstance(call_id, str) and call_id and waiting.pop(call_id, None) is None:
                yield Slip("tool result without its call", position, None, call_id)
            continue
        yield from waiting.values()
        waiting = {}
        for index, call_id in _ids(message):
            if call_id in waiting:
                yield Slip("two tool calls with one id", position, index, call_id)
            waiting[call_id] = Slip("tool call without its result", position, index, call_id)
    if messages and messages[-1].get("role") == "tool":
        yield from waiting.values()


def _ids(message: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        call_id = call.get("id") if isinstance(call, Mapping) else None
        if isinstance(call_id, str) and call_id:
            yield index, call_id
