"""Find flaws of a row that is a conversation: `{"messages": […], "tools": […]}`, and of its texts."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

from trajkit._core.memo import n_characters
from trajkit.formats.chat.openai_rules import FUNCTION_NAME, MESSAGE_KEYS, ROW_KEYS, SPECIAL_TOKEN
from trajkit.formats.validation.finding import Flaw, Severity, shown, wrong_type
from trajkit.formats.validation.target import Target

UNDECLARED = "call of a tool that the row does not declare"
"""The kind of flaw that `trajkit convert --tools` repairs."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_IMAGE_BYTES = 10_000_000
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp")
_DATA_URL = re.compile(r"data:(?P<type>[^;,]+)(?P<is_base64>;base64)?,(?P<data>.*)", re.DOTALL)


def row_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws for which a row of supervised fine-tuning is refused, in the order of the row."""
    yield from key_flaws(row, ROW_KEYS | ({"weight"} if target.has_row_weights else set()), target)
    weight = row.get("weight", 1) if target.has_row_weights else 1
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        yield wrong_type("$.weight", "a number", weight)
    messages = row.get("messages")
    if not isinstance(messages, list):
        yield wrong_type("$.messages", "a list of messages", messages)
        return
    yield from tool_flaws(row, target)
    yield from conversation_flaws(messages, "$.messages", target, tools=row.get("tools"))
    yield from _last_flaws(messages, target)


def key_flaws(row: dict[str, Any], known: frozenset[str] | set[str], target: Target) -> Iterator[Flaw]:
    """Yield keys that the target does not support."""
    for key in row.keys() - known:
        if target.takes_extra_keys:
            yield Flaw(
                "the key is ignored",
                f"$.{key}",
                f"{target.name} does not read it; weights and ids belong in a file beside this one",
                shown(row[key]),
                Severity.WARNING,
            )
        else:
            yield Flaw(
                "extra key", f"$.{key}", f"{target.name} takes {', '.join(sorted(known))}", shown(row[key])
            )


def conversation_flaws(
    messages: Sequence[Any], path: str, target: Target, *, tools: Any = None
) -> Iterator[Flaw]:
    """Yield flaws of messages: of each alone, of their order, and of calls and results.

    Args:
        messages: The messages, of any type.
        path: Their place.
        target: The target whose rules apply.
        tools: The tools that the row declares.
    """
    are_read = True
    for position, message in enumerate(messages):
        where = f"{path}[{position}]"
        if not isinstance(message, dict):
            yield wrong_type(where, "a message", message)
            are_read = False
            continue
        if target.flawless is None:
            yield from message_flaws(message, where, target)
        elif not target.flawless.get(message):
            flaws = list(message_flaws(message, where, target))
            yield from flaws
            if not flaws:
                target.flawless.keep(message, True, n_characters(message))
        role = message.get("role")
        are_read = are_read and isinstance(role, str) and role in MESSAGE_KEYS
    if not messages:
        yield Flaw("no message", path, "leave the row out")
    elif are_read:
        yield from _order_flaws(messages, path, target)
        yield from _pairing_flaws(messages, path)
        yield from schema_flaws(messages, path, tools)


def message_flaws(message: dict[str, Any], where: str, target: Target) -> Iterator[Flaw]:
    """Yield the flaws of one message alone."""
    role = message.get("role")
    if not isinstance(role, str) or role not in MESSAGE_KEYS:
        hint = f"one of {', '.join(MESSAGE_KEYS)}"
        kind = "role is missing" if role is None else "unknown role"
        yield Flaw(kind, f"{where}.role", hint, "" if role is None else shown(role))
        return
    known = MESSAGE_KEYS[role] | (
        {"reasoning_content"} if target.has_thoughts and role == "assistant" else set()
    )
    for key in sorted(message.keys() - known):
        if not target.takes_extra_keys:
            hint = f"remove it: a message of role {role} has {', '.join(sorted(known))}"
            yield Flaw(f"{key!r} in a message of role {role}", f"{where}.{key}", hint, shown(message[key]))
    yield from _weight_flaws(message, where, target)
    calls = message.get("tool_calls") if role == "assistant" else None
    says_more = bool(isinstance(calls, list) and calls) or (
        target.has_thoughts and role == "assistant" and bool(message.get("reasoning_content"))
    )
    yield from content_flaws(
        message.get("content"), f"{where}.content", role, target, may_be_empty=says_more or role == "tool"
    )
    for name in ("name", "reasoning_content", "refusal"):
        if isinstance(message.get(name), str):
            yield from text_flaws(message[name], f"{where}.{name}", target)
    call_id = message.get("tool_call_id")
    if role == "tool" and (not isinstance(call_id, str) or (target.needs_call_ids and not call_id)):
        yield Flaw(
            "tool message without the id of its call",
            f"{where}.tool_call_id",
            "the id of the call it answers",
        )
    if calls is not None:
        yield from _call_flaws(calls, f"{where}.tool_calls", target)


def _weight_flaws(message: dict[str, Any], where: str, target: Target) -> Iterator[Flaw]:
    if "weight" not in message:
        return
    weight = message["weight"]
    at = f"{where}.weight"
    if isinstance(weight, bool) or weight not in (0, 1):
        yield Flaw("weight other than 0 and 1", at, "0 is context, 1 is learned", shown(weight))
    elif not target.has_message_weights:
        hint = f"{target.name} ignores weights: `trajkit convert` writes rows that teach the same without"
        severity = Severity.WARNING if target.takes_extra_keys else Severity.ERROR
        yield Flaw("weight is ignored", at, hint, shown(weight), severity)


def _call_flaws(calls: Any, path: str, target: Target) -> Iterator[Flaw]:
    if not isinstance(calls, list):
        yield wrong_type(path, "a list of tool calls", calls)
        return
    if not calls:
        yield Flaw("no tool call in the list", path, "leave tool_calls out", "[]")
    for index, call in enumerate(calls):
        where = f"{path}[{index}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            yield Flaw(
                "not a tool call", where, 'as {"id", "type": "function", "function": {…}}', shown(call)
            )
            continue
        if call.get("type", "function") != "function":
            yield Flaw("tool call of another type", f"{where}.type", 'it is "function"', shown(call["type"]))
        if target.needs_call_ids and not (isinstance(call.get("id"), str) and call["id"]):
            yield Flaw("tool call without an id", f"{where}.id", "any text that no other call in the row has")
        yield from name_flaws(function.get("name"), f"{where}.function.name")
        yield from _argument_flaws(function.get("arguments"), f"{where}.function.arguments", target)


def _argument_flaws(arguments: Any, path: str, target: Target) -> Iterator[Flaw]:
    if target.arguments == "object":
        if not isinstance(arguments, dict):
            hint = "chat templates iterate over an object; a text is written in quotes"
            yield Flaw("arguments are not an object", path, hint, shown(arguments))
        return
    if not isinstance(arguments, str):
        yield Flaw("arguments are not a text", path, "the JSON object as a text", shown(arguments))
        return
    yield from text_flaws(arguments, path, target)
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except ValueError:
        is_object = False
    if not is_object:
        hint = "the model would learn to make such calls"
        yield Flaw("arguments are not a JSON object", path, hint, shown(arguments), Severity.WARNING)


def name_flaws(name: Any, path: str) -> Iterator[Flaw]:
    """Yield a flaw if the name of a function is not valid."""
    if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
        yield Flaw("not a function name", path, "1 to 64 letters, digits, _ and -", shown(name))


def tool_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws of the tools that a row declares."""
    parallel = row.get("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        yield wrong_type("$.parallel_tool_calls", "true or false", parallel)
    tools = row.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list):
        yield wrong_type("$.tools", "a list of tools", tools)
        return
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        where = f"$.tools[{index}]"
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            yield Flaw("not a tool", where, 'as {"type": "function", "function": {…}}', shown(tool))
            continue
        name = function.get("name")
        yield from name_flaws(name, f"{where}.function.name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            yield Flaw("repeated tool", f"{where}.function.name", f"remove tools[{index}]", shown(name))
        parameters = function.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            yield wrong_type(f"{where}.function.parameters", "a JSON Schema (an object)", parameters)
        elif parameters is not None:
            text = json.dumps(parameters, ensure_ascii=False)
            yield from text_flaws(text, f"{where}.function.parameters", target)
        if isinstance(function.get("description"), str):
            yield from text_flaws(function["description"], f"{where}.function.description", target)


def _order_flaws(messages: Sequence[dict[str, Any]], path: str, target: Target) -> Iterator[Flaw]:
    roles = [message["role"] for message in messages]
    for position, role in enumerate(roles):
        where = f"{path}[{position}]"
        if role == "system" and position:
            hint = "put it first, or make it the user's"
            yield Flaw("a system message that is not the first", where, hint)
        if target.must_alternate and position and role == roles[position - 1]:
            hint = f"{target.name} requires them to alternate: join them"
            yield Flaw(f"two messages of role {role} in a row", where, hint)


def _pairing_flaws(messages: Sequence[dict[str, Any]], path: str) -> Iterator[Flaw]:
    """Check that every call, except in a final answer, is followed at once by its result, and vice versa.

    Services refuse such rows. Calls and results without a readable id are ignored.
    """
    waiting: dict[str, str] = {}
    """The place of each call without its result, by id."""

    def unanswered() -> Iterator[Flaw]:
        for call_id, at in waiting.items():
            hint = "add the tool message that answers it"
            yield Flaw("tool call without its result", at, hint, shown(call_id))

    for position, message in enumerate(messages):
        where = f"{path}[{position}]"
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if isinstance(call_id, str) and call_id and waiting.pop(call_id, None) is None:
                hint = "put it right after the message with the call, once"
                yield Flaw("tool result without its call", f"{where}.tool_call_id", hint, shown(call_id))
            continue
        yield from unanswered()
        waiting.clear()
        calls = message.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            call_id = call.get("id") if isinstance(call, dict) else None
            if not isinstance(call_id, str) or not call_id:
                continue
            at = f"{where}.tool_calls[{index}].id"
            if call_id in waiting:
                yield Flaw("two tool calls with one id", at, "give each an id of its own", shown(call_id))
            waiting[call_id] = at
    if messages and messages[-1].get("role") == "tool":
        yield from unanswered()


def _calls(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            yield call


def schema_flaws(messages: Sequence[dict[str, Any]], path: str, tools: Any) -> Iterator[Flaw]:
    """Yield calls of undeclared tools: the model would learn to call tools that it is not offered."""
    declared = {
        tool["function"].get("name")
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    }
    for position, message in enumerate(messages):
        for index, call in enumerate(_calls(message)):
            name = call["function"].get("name")
            if isinstance(name, str) and name not in declared:
                at = f"{path}[{position}].tool_calls[{index}].function.name"
                yield Flaw(UNDECLARED, at, "add it to $.tools", shown(name))


def _last_flaws(messages: Sequence[Any], target: Target) -> Iterator[Flaw]:
    """Yield flaws if a row does not end with an answer, or no answer is learned."""
    if not messages or not all(isinstance(message, dict) for message in messages):
        return
    answers = [message for message in messages if message.get("role") == "assistant"]
    if messages[-1].get("role") != "assistant":
        at = f"$.messages[{len(messages) - 1}].role"
        yield Flaw(
            "the last message is not the assistant's",
            at,
            "end the row with an answer",
            shown(messages[-1].get("role")),
        )
    elif target.has_message_weights and all(message.get("weight") == 0 for message in answers):
        yield Flaw("nothing to learn", "$.messages", "every answer has weight 0: leave the row out")
    if len(messages) == 1 and answers:
        yield Flaw("no message before the answer", "$.messages", "a row needs a prompt")


def content_flaws(
    content: Any, path: str, role: str, target: Target, *, may_be_empty: bool
) -> Iterator[Flaw]:
    """Yield the flaws of the content of a message.

    Args:
        content: A text, a list of parts, or any other value.
        path: Its place.
        role: The message's role.
        target: The target whose rules apply.
        may_be_empty: Whether the message has something besides its content.
    """
    if isinstance(content, str):
        if not content and not may_be_empty:
            yield Flaw(f"empty {role} message", path, "leave the message out, or the row", '""')
        yield from text_flaws(content, path, target)
    elif content is None:
        if not may_be_empty:
            yield Flaw(f"{role} message without content", path, "a text, or tool_calls beside it", "null")
    elif isinstance(content, list):
        yield from _part_flaws(content, path, role, target)
    else:
        yield wrong_type(path, "a text or a list of parts", content)


def _part_flaws(parts: list[Any], path: str, role: str, target: Target) -> Iterator[Flaw]:
    if not parts:
        yield Flaw(f"empty {role} message", path, "leave the message out, or the row", "[]")
    if target.arguments == "object":
        hint = "many chat templates take texts only: write the parts as one text"
        yield Flaw("content in parts", path, hint, severity=Severity.WARNING)
    for index, part in enumerate(parts):
        where = f"{path}[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            if isinstance(part.get("text"), str):
                yield from text_flaws(part["text"], f"{where}.text", target)
            else:
                yield wrong_type(f"{where}.text", "a text", part.get("text"))
        elif kind == "image_url":
            yield from _image_flaws(part, where, role, target)
        else:
            yield Flaw(
                "part of a type that is not accepted", where, "text and image_url are", shown(kind or part)
            )


def _image_flaws(part: dict[str, Any], where: str, role: str, target: Target) -> Iterator[Flaw]:
    holder = part.get("image_url")
    url = holder.get("url") if isinstance(holder, dict) else None
    at = f"{where}.image_url.url"
    if target.max_images is None:
        yield Flaw("an image", where, f"{target.name} takes none: convert again without images")
    elif role != "user":
        yield Flaw(f"an image in a message of role {role}", where, "only the user's messages may have images")
    elif not isinstance(url, str):
        yield wrong_type(at, "a URL", url)
    elif url.startswith("data:"):
        yield from _data_flaws(url, at)
    elif not url.startswith("https://"):
        yield Flaw("an image that is neither at https:// nor inline", at, "embed it as data:", shown(url))


def _data_flaws(url: str, at: str) -> Iterator[Flaw]:
    found = _DATA_URL.fullmatch(url)
    if found is None or not found["is_base64"]:
        yield Flaw("not a data URL", at, "as data:image/png;base64,…", shown(url))
        return
    if found["type"] not in _IMAGE_TYPES:
        yield Flaw("an image of another type", at, f"one of {', '.join(_IMAGE_TYPES)}", found["type"])
    try:
        n_bytes = len(b64decode(found["data"], validate=True))
    except (binascii.Error, ValueError):
        yield Flaw("an image that is not base64", at, "encode it again", shown(url))
        return
    if n_bytes > _MAX_IMAGE_BYTES:
        yield Flaw("an image over 10 MB", at, "make it smaller", f"{n_bytes / 1e6:.1f} MB")


def n_images(messages: Any) -> int:
    """Count the images in a list of messages."""
    return sum(
        1
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for part in message["content"]
        if isinstance(part, dict) and part.get("type") == "image_url"
    )


def text_flaws(text: str, path: str, target: Target) -> Iterator[Flaw]:
    """Yield the flaws of a single text."""
    if target.refuses_special_tokens and (found := SPECIAL_TOKEN.search(text)):
        yield Flaw(
            "special token", path, "the service refuses such texts: leave the row out", shown(found[0])
        )
    if _SURROGATE.search(text):
        yield Flaw(
            "half of a character (a lone surrogate)", path, "no UTF-8 file can hold it: repair the source"
        )
