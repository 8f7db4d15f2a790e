"""Find the format of a model's tool calls from its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate

_NAME = "trajkit_probe"
_ARGUMENTS = {"key": "value"}
_SPELLINGS = (json.dumps(_ARGUMENTS), json.dumps(_ARGUMENTS, separators=(",", ":")))
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    },
}
_CALL = {
    "id": "abcde1234",  # some templates want nine characters
    "type": "function",
    "function": {"name": _NAME, "arguments": json.dumps(_ARGUMENTS)},
}
_QUESTION = {"role": "user", "content": "?"}


class CallStyle(NamedTuple):
    """The format of a tool call: fixed texts around its name and its arguments."""

    begin: str
    """Mark before a call; empty if there is none."""
    head: str
    """Text between that mark and the name."""
    middle: str
    """Text between the name and the arguments."""
    tail: str
    """Text between the arguments and the end mark."""
    end: str
    """Mark after a call."""
    takes_tools: bool
    """Whether the chat template writes the tools into the prompt."""

    @property
    def mark(self) -> str:
        """The mark before a call without the white space around it."""
        return self.begin.strip()


OWN = CallStyle("<tool_call>", '{"name": "', '", "arguments": ', "}", "</tool_call>", takes_tools=False)
"""The format for models whose chat template does not support tools."""


def call_style(template: ChatTemplate) -> CallStyle:
    """Return the format of a model's tool calls.

    Args:
        template: The model's chat template. It renders a conversation with a call, and the texts around the
            name and the arguments are the format. Where it does not support tools, or writes a call as
            anything but a JSON object with name and arguments, the result is `OWN`.
    """
    answer = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
    try:
        takes = template.prompt([_QUESTION]) != template.prompt([_QUESTION], [_TOOL])
        rendered = template.render([_QUESTION, answer], [_TOOL])
    except RequestError:
        return OWN
    if not takes or not rendered.spans:
        return OWN
    start, stop = rendered.spans[-1]
    return _read(template.decode(rendered.tokens[start:stop])) or OWN


def _read(text: str) -> CallStyle | None:
    """Parse the format of a rendered call; None when it is not an object with name, then arguments."""
    for place, character in enumerate(text):
        if character != "{":
            continue
        try:
            call, length = json.JSONDecoder().raw_decode(text[place:])
        except ValueError:
            continue
        if not isinstance(call, dict) or call.get("name") != _NAME or _ARGUMENTS not in call.values():
            return None
        whole = text[place : place + length]
        spelled = next((some for some in _SPELLINGS if some in whole), None)
        if spelled is None or next(iter(call)) != "name":
            return None
        head, _, rest = whole.partition(_NAME)
        middle, _, tail = rest.partition(spelled)
        begin, end = _last_word(text[:place]), _first_word(text[place + length :])
        return CallStyle(begin, head, middle, tail, end, takes_tools=True)
    return None


def _last_word(text: str) -> str:
    """Return the mark before a call, without the turn's beginning and empty thoughts that may precede it."""
    words = text.split()
    return text[text.rindex(words[-1]) :] if words else ""


def _first_word(text: str) -> str:
    words = text.split()
    return text[: text.index(words[0]) + len(words[0])] if words else ""


def with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Write tools into the system message, for a template that does not support them.

    Earlier calls are written into assistant messages between `<tool_call>` and `</tool_call>`, and their
    results into user messages between `<tool_response>` and `</tool_response>`.
    """
    listed = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    instructions = (
        f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
        "To call one, write a JSON object with its name and its arguments like this:\n"
        f'{OWN.begin}{{"name": "NAME", "arguments": {{}}}}{OWN.end}'
    )
    written = [_as_text(message) for message in messages]
    if written and written[0]["role"] in ("system", "developer"):
        written[0]["content"] = f"{written[0]['content']}\n\n{instructions}"
        return written
    return [{"role": "system", "content": instructions}, *written]


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(str(part.get("text") or "") for part in content)
    if message.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>{content}</tool_response>"}
    calls = "".join(
        f"{OWN.begin}{OWN.head}{call['function']['name']}{OWN.middle}"
        f"{call['function']['arguments']}{OWN.tail}{OWN.end}"
        for call in message.get("tool_calls") or ()
    )
    return {"role": str(message.get("role")), "content": content + calls}
