"""How a model writes tool calls into its answers, found by what its chat template does with one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.errors import RequestError
from trajkit.formats.tokenizer import ChatTemplate

_NAME = "trajkit_probe"
_ARGUMENTS = {"key": "value"}
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
    """How a tool call is written: its name and its arguments with fixed texts around them."""

    begin: str
    """The mark before a call; empty where there is none."""
    head: str
    """From there to the name."""
    middle: str
    """Between the name and the arguments."""
    tail: str
    """From the arguments to the mark at the end."""
    end: str
    """The mark after a call."""
    takes_tools: bool
    """Whether the chat template writes the tools into the prompt."""

    @property
    def mark(self) -> str:
        """The mark before a call without the white space around it."""
        return self.begin.strip()


OWN = CallStyle("<tool_call>", '{"name": "', '", "arguments": ', "}", "</tool_call>", takes_tools=False)
"""What a model is told to write whose chat template knows no tools."""


def call_style(template: ChatTemplate) -> CallStyle:
    """How a model writes tool calls.

    Args:
        template: The model's. It is asked to write a conversation with a call, and what it writes around the
            name and the arguments is the style. Where it does not take tools, or writes calls in another way
            than as a JSON object with a name and arguments, `OWN` is.
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
    """The style of a call; None when it is not an object with the name first and then the arguments."""
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
        spelled = next((some for some in _spellings() if some in whole), None)
        if spelled is None or next(iter(call)) != "name":
            return None
        head, _, rest = whole.partition(_NAME)
        middle, _, tail = rest.partition(spelled)
        begin, end = _last_word(text[:place]), _first_word(text[place + length :])
        return CallStyle(begin, head, middle, tail, end, takes_tools=True)
    return None


def _last_word(text: str) -> str:
    """The mark before a call: the beginning of a turn and empty thoughts, which can stand there, are none."""
    words = text.split()
    return text[text.rindex(words[-1]) :] if words else ""


def _first_word(text: str) -> str:
    words = text.split()
    return text[: text.index(words[0]) + len(words[0])] if words else ""


def _spellings() -> tuple[str, ...]:
    return json.dumps(_ARGUMENTS), json.dumps(_ARGUMENTS, separators=(",", ":"))


def with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A conversation for a template that knows no tools: they are told in the system message.

    Calls of earlier turns stand in the assistant's texts between `<tool_call>` and `</tool_call>`, and what
    came back in the user's, between `<tool_response>` and `</tool_response>`.
    """
    listed = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    told = (
        f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
        "To call one, write a JSON object with its name and its arguments like this:\n"
        f'{OWN.begin}{{"name": "NAME", "arguments": {{}}}}{OWN.end}'
    )
    written = [_as_text(message) for message in messages]
    if written and written[0]["role"] in ("system", "developer"):
        written[0]["content"] = f"{written[0]['content']}\n\n{told}"
        return written
    return [{"role": "system", "content": told}, *written]


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
