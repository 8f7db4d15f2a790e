"""What OpenAI's fine-tuning service refuses in a row, told before it does; which calls have no result.

From the row schema of the `manual_spec` branch of openai/openai-openapi, and from refusals seen in the
wild, such as `contains an extra "weight"` and `message contains an invalid token: <|fim_suffix|>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.formats.base import Problem

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


def problems(row: dict[str, Any]) -> Iterator[Problem]:
    """Everything for which the service would refuse this row, in the order of the row."""
    for key in row.keys() - ROW_KEYS:
        yield Problem("extra key", key)
    messages: Sequence[dict[str, Any]] = row.get("messages") or []
    for position, message in enumerate(messages):
        yield from _message_problems(message, f"messages.{position}")
    yield from _order_problems(messages)
    yield from _pairing_problems(messages)
    for position, tool in enumerate(row.get("tools") or []):
        yield from _name_problems(tool["function"].get("name"), f"tools.{position}.function.name")
    for where, text in _texts(row, ""):
        if found := SPECIAL_TOKEN.search(text):
            yield Problem("special token", where, found[0])


def _message_problems(message: dict[str, Any], where: str) -> Iterator[Problem]:
    role = message.get("role")
    if role not in MESSAGE_KEYS:
        yield Problem("unknown role", where, repr(role))
        return
    for key in sorted(message.keys() - MESSAGE_KEYS[role]):
        yield Problem(f"{key} in a message of role {role}", where)
    if not message.get("content") and not message.get("tool_calls") and role != "tool":
        yield Problem(f"empty {role} message", where)
    if role == "tool" and not message.get("tool_call_id"):
        yield Problem("tool message without the id of its call", where)
    if message.get("weight", 0) not in (0, 1):
        yield Problem("weight other than 0 and 1", where, repr(message["weight"]))
    for index, call in enumerate(message.get("tool_calls", ())):
        at = f"{where}.tool_calls.{index}"
        if not call["id"]:
            yield Problem("tool call without an id", f"{at}.id")
        yield from _name_problems(call["function"]["name"], f"{at}.function.name")


def _order_problems(messages: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    if not messages or messages[-1].get("role") != "assistant":
        yield Problem("the last message is not the assistant's", "messages")
    elif messages[-1].get("weight") == 0:
        yield Problem("nothing to learn: the last message has weight 0", "messages")
    elif len(messages) == 1:
        yield Problem("no message before the answer", "messages")


def _pairing_problems(messages: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    for slip in slips(messages):
        where = f"messages.{slip.message}"
        if slip.call is not None:
            where = f"{where}.tool_calls.{slip.call}.id"
        yield Problem(slip.kind, where, repr(slip.call_id))


def _name_problems(name: Any, where: str) -> Iterator[Problem]:
    if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
        yield Problem("function name other than 1 to 64 letters, digits, _ and -", where, repr(name))


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text in the row, keys of objects included, with its place."""
    match value:
        case str():
            yield where, value
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, f"{where}.{index}" if where else str(index))
        case dict():
            for key, item in value.items():
                yield where, key
                yield from _texts(item, f"{where}.{key}" if where else key)


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
