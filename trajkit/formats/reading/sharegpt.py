"""Read ShareGPT: `conversations` of `{from, value}`, as LLaMA-Factory and its predecessors write them.

There are many dialects. A tool call is a turn `function_call` whose value is JSON (`{name, arguments}`, or a
list of them), its result a turn `observation`; ids are generated, because the format has none. Text in
`<think>…</think>` at the start of an answer is a thought.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from trajkit.formats.chat.conversation import tools_of
from trajkit.formats.profile import episode_from
from trajkit.formats.reading.atif_parts import compact
from trajkit.formats.reading.document import BadDocument, Reading, object_at, objects_at, shown, text_at
from trajkit.schema import (
    Block,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trajkit.schema.base import JsonObject

_HUMAN = frozenset({"human", "user"})
_MODEL = frozenset({"gpt", "assistant", "model", "chatgpt", "bing", "bard"})
_CALL = frozenset({"function_call", "function-call", "tool_call"})
_RESULT = frozenset({"observation", "tool", "function_response", "function", "ipython"})
_KNOWN = ("conversations", "conversation", "system", "tools", "id")
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)</parameter>", re.DOTALL)
_THINK = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.DOTALL)


def is_sharegpt(value: Any) -> bool:
    """Whether a row is a ShareGPT conversation."""
    turns = _turns(value) if isinstance(value, dict) else None
    return isinstance(turns, list) and bool(turns) and isinstance(turns[0], dict) and "from" in turns[0]


def read_sharegpt(value: JsonObject) -> Reading:
    """Return the episode of a conversation.

    Raises:
        BadDocument: It is not a conversation.
    """
    turns = objects_at(_turns(value), "conversations")
    messages = list(_messages(turns))
    if system := value.get("system"):
        text = TextBlock(text=text_at(system, "system"))
        messages.insert(0, Message(role=Role.SYSTEM, content=(text,)))
    others = {name: item for name, item in value.items() if name not in _KNOWN and item is not None}
    fields = {
        "episode_id": str(value.get("id") or "unnamed"),
        "source": "sharegpt",
        "origin": {"row": others} if others else None,
    }
    episode = episode_from(fields, messages, None)
    if tools := tools_of(value.get("tools")):
        steps = tuple(step.model_copy(update={"tools": tools}) for step in episode.steps)
        episode = episode.model_copy(update={"steps": steps})
    return Reading((episode,), is_named=bool(value.get("id")))


def role_of(speaker: Any, where: str) -> str:
    """Return the role of a speaker, for turns without calls.

    Raises:
        BadDocument: The format has no such speaker.
    """
    for role, speakers in (("system", ["system"]), ("user", _HUMAN), ("assistant", _MODEL)):
        if isinstance(speaker, str) and speaker in speakers:
            return role
    raise BadDocument("not a speaker of this format", f"{where}.from", shown(speaker))


def _turns(value: JsonObject) -> Any:
    return value.get("conversations", value.get("conversation"))


def _messages(turns: Any) -> Iterator[Message]:
    waiting: list[ToolCallBlock] = []
    n_calls = 0
    for position, turn in enumerate(turns):
        where = f"conversations.{position}"
        speaker = text_at(turn.get("from"), f"{where}.from")
        text = text_at(turn.get("value"), f"{where}.value")
        try:
            if speaker == "system":
                yield Message(role=Role.SYSTEM, content=(TextBlock(text=text),))
            elif speaker in _HUMAN:
                yield Message(role=Role.USER, content=(TextBlock(text=text),) if text else ())
            elif speaker in _MODEL:
                yield Message(role=Role.ASSISTANT, content=tuple(_answer_blocks(text)))
            elif speaker in _CALL:
                blocks = list(_called(text, where, n_calls))
                waiting = [block for block in blocks if isinstance(block, ToolCallBlock)]
                n_calls += len(waiting)
                yield Message(role=Role.ASSISTANT, content=tuple(blocks))
            elif speaker in _RESULT:
                if not waiting:
                    raise BadDocument("a tool result without its call", where, shown(text))
                yield from _results(text, waiting)
            else:
                raise BadDocument("not a speaker of this format", f"{where}.from", shown(speaker))
        except ValueError as error:
            raise BadDocument("not text", where, shown(str(error))) from error


def _answer_blocks(text: str) -> Iterator[Block]:
    if found := _THINK.match(text):
        yield ThoughtBlock(text=found[1].strip())
        text = text[found.end() :]
    if text:
        yield TextBlock(text=text)


def _called(text: str, where: str, n_calls: int) -> Iterator[Block]:
    """Yield the blocks of a call turn; thoughts and text may precede the JSON."""
    if found := _THINK.match(text):
        yield ThoughtBlock(text=found[1].strip())
        text = text[found.end() :]
    value: Any = [_tagged(found) for found in _FUNCTION.finditer(text)]
    if not value or _FUNCTION.sub("", text).strip():
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise BadDocument("a call that is not JSON", f"{where}.value", shown(text)) from None
    for number, call in enumerate(value if isinstance(value, list) else [value], n_calls + 1):
        name = text_at(object_at(call, f"{where}.value").get("name"), f"{where}.value.name")
        given = call.get("arguments", call.get("parameters"))
        arguments = given if isinstance(given, str) else compact({} if given is None else given)
        yield ToolCallBlock(id=f"call_{number}", name=name, arguments=arguments)


def _tagged(found: re.Match[str]) -> dict[str, Any]:
    """Parse a call written as `<function=name>` with JSON, or with `<parameter=name>` for each argument."""
    name, body = found[1], found[2].strip()
    if given := {one[1]: one[2].strip("\n") for one in _PARAMETER.finditer(body)}:
        return {"name": name, "arguments": given}
    return {"name": name, "arguments": body or "{}"}


def _results(text: str, waiting: list[ToolCallBlock]) -> Iterator[Message]:
    """Yield the results of a turn: it answers the oldest call, or with a list all waiting calls."""
    texts = [text]
    if len(waiting) > 1:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, list) and len(value) == len(waiting):
            texts = [one if isinstance(one, str) else compact(one) for one in value]
    for one in texts:
        call = waiting.pop(0)
        result = ToolResultBlock(id=call.id, name=call.name, result=one)
        yield Message(role=Role.TOOL, content=(result,))
