"""Rules of OpenAI's fine-tuning service for rows, and pairs of calls and results.

From the row schema of the `manual_spec` branch of openai/openai-openapi, and from published refusals, such as
`contains an extra "weight"` and `message contains an invalid token: <|fim_suffix|>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MIN_ROWS = 10
"""`Training file has 7 example(s), but must have at least 10 examples`."""

ROW_KEYS = frozenset({"messages", "tools", "parallel_tool_calls"})
"""Allowed fields of a row."""
MESSAGE_KEYS = {
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "weight", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
"""Allowed fields of a message, by role."""
FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Allowed names of functions."""
SPECIAL_TOKEN = re.compile(
    r"<\|(?:endoftext|endofprompt|fim_prefix|fim_middle|fim_suffix|im_start|im_end|im_sep)\|>"
)
"""`message contains an invalid token: <|fim_suffix|>`."""


class Slip(NamedTuple):
    """A call without its result, or a result without its call, which services refuse."""

    kind: str
    """What is wrong, from a small set of texts."""
    message: int
    """Position of the message."""
    call: int | None
    """Position among the calls of that message; None for a result."""
    call_id: str
    """The id without a partner, or with two."""


def slips(messages: Sequence[Mapping[str, Any]]) -> Iterator[Slip]:
    """Check that every call, except in a final answer, is followed at once by its result, and vice versa.

    Args:
        messages: Written messages; calls and results without a readable id are ignored.
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
