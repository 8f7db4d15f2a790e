"""Messages of Anthropic's API and of LLaMA-Factory's v1 files, respelled as OpenAI's chat API has them.

Anthropic: a call is a block `tool_use` of the assistant, its result a block `tool_result` of the user.
LLaMA-Factory v1: every part is `{type, value}`, a call a part `tool_call` with JSON; there are no ids, so
they are made, and a result answers the oldest call that waits.
"""

from __future__ import annotations

import json
from typing import Any

from trajkit.formats.atif_parts import compact
from trajkit.formats.document import BadDocument, shown

_CALLS = ("tool_call", "tool_calls")


class Respeller:
    """Follows a conversation, since ids that are made connect its messages."""

    def __init__(self) -> None:
        self._n_calls = 0
        self._waiting: list[str] = []

    def messages(self, sent: dict[str, Any], where: str) -> list[dict[str, Any]]:
        """A message as one or more of OpenAI's; the very message where it is one.

        Raises:
            BadDocument: A part is not what its type says.
        """
        parts = sent.get("content")
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            return [sent]
        if any(part.get("type") in ("tool_use", "tool_result", "thinking") for part in parts):
            return self._of_anthropic(sent, parts, where)
        if parts and all(isinstance(part.get("value"), str) for part in parts):
            return self._of_llama_factory(sent, parts, where)
        return [sent]

    def _of_anthropic(
        self, sent: dict[str, Any], parts: list[dict[str, Any]], where: str
    ) -> list[dict[str, Any]]:
        content: list[Any] = []
        calls: list[Any] = []
        results: list[Any] = []
        own = dict(sent)
        for position, part in enumerate(parts):
            at = f"{where}.content.{position}"
            match part.get("type"):
                case "tool_use":
                    calls.append(_call(part.get("id"), part.get("name"), part.get("input"), at))
                case "tool_result":
                    inner = part.get("content")
                    inner = [_source(one) for one in inner] if isinstance(inner, list) else inner
                    rest = {"is_error": True} if part.get("is_error") else {}
                    call_id = part.get("tool_use_id")
                    results.append({"role": "tool", "tool_call_id": call_id, "content": inner, **rest})
                case "thinking" if isinstance(part.get("thinking"), str):
                    own["reasoning_content"] = own.get("reasoning_content", "") + part["thinking"]
                case _:
                    content.append(_source(part))
        own["content"] = content
        if calls:
            own["tool_calls"] = calls
        return [*results, own] if content or calls or own.get("reasoning_content") else results

    def _of_llama_factory(
        self, sent: dict[str, Any], parts: list[dict[str, Any]], where: str
    ) -> list[dict[str, Any]]:
        own = {**sent, "content": []}
        calls: list[Any] = []
        for position, part in enumerate(parts):
            at, value = f"{where}.content.{position}", part["value"]
            match part.get("type"):
                case "text":
                    own["content"].append({"type": "text", "text": value})
                case "reasoning":
                    own["reasoning_content"] = own.get("reasoning_content", "") + value
                case "image_url":
                    own["content"].append({"type": "image_url", "image_url": {"url": value}})
                case "tools":
                    pass  # see `tools_among`
                case kind if kind in _CALLS:
                    for call in _json(value, at):
                        self._n_calls += 1
                        self._waiting.append(f"call_{self._n_calls}")
                        name, given = call.get("name"), call.get("arguments", call.get("parameters"))
                        calls.append(_call(self._waiting[-1], name, given, at))
                case _:
                    own["content"].append(part)
        if calls:
            own["tool_calls"] = calls
        if own.get("role") == "tool" and "tool_call_id" not in own:
            if not self._waiting:
                raise BadDocument("a tool result without its call", where)
            own["tool_call_id"] = self._waiting.pop(0)
        return [own]


def tools_among(messages: list[dict[str, Any]]) -> str | None:
    """The tools that LLaMA-Factory declares as a part of a message; None where there are none."""
    contents = [one["content"] for one in messages if isinstance(one.get("content"), list)]
    parts = [part for content in contents for part in content if isinstance(part, dict)]
    return next((part["value"] for part in parts if part.get("type") == "tools" and "value" in part), None)


def _call(call_id: Any, name: Any, given: Any, where: str) -> dict[str, Any]:
    if not isinstance(name, str):
        raise BadDocument("a call that names no tool", where, shown(name))
    arguments = given if isinstance(given, str) else compact({} if given is None else given)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _source(part: Any) -> Any:
    """A picture of Anthropic's as a part of OpenAI's."""
    source = part.get("source") if isinstance(part, dict) and part.get("type") == "image" else None
    if not isinstance(source, dict):
        return part
    url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data') or ''}"
    return {"type": "image_url", "image_url": {"url": url}}


def _json(text: str, where: str) -> list[dict[str, Any]]:
    """Calls as JSON: an object, or a list of them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadDocument("a call that is not JSON", where, shown(text)) from None
    calls = value if isinstance(value, list) else [value]
    if not all(isinstance(call, dict) for call in calls):
        raise BadDocument("a call that is no object", where, shown(text))
    return calls
