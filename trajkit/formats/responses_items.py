"""Read items of OpenAI's Responses API as chat messages, whose spelling everything else here knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trajkit.formats.atif_parts import compact
from trajkit.formats.document import BadDocument, object_at, shown

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")


def chat_messages(items: Any, where: str = "input") -> list[dict[str, Any]]:
    """Return the chat messages of a list of items, or of a text; items of one answer become one message.

    A message that is in the chat spelling stays as it is. An item that no chat message can hold becomes a
    text part with its JSON.

    Raises:
        BadDocument: It is neither a text nor a list of objects.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list):
        raise BadDocument("not a list", where, shown(items))
    messages: list[dict[str, Any]] = []
    for position, item in enumerate(items):
        _add(messages, object_at(item, f"{where}.{position}"))
    return messages


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    match item.get("type"):
        case "function_call":
            call = {
                "id": item.get("call_id"),
                "type": "function",
                "function": {"name": item.get("name"), "arguments": item.get("arguments") or "{}"},
            }
            _answer(messages).setdefault("tool_calls", []).append(call)
        case "function_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else _text(output)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
        case "reasoning":
            text = "\n\n".join(filter(None, (_text(item.get("content")), _text(item.get("summary")))))
            answer = _answer(messages)
            if text:
                answer["reasoning_content"] = "\n\n".join(
                    filter(None, (answer.get("reasoning_content"), text))
                )
        case "message" | None if "role" in item:
            if item["role"] == "assistant" and "tool_calls" not in item:
                answer = _answer(messages)
                answer["content"] = (answer.get("content") or "") + _text(item.get("content"))
            else:
                rest = {name: value for name, value in item.items() if name not in ("type", "id", "status")}
                messages.append({**rest, "content": _parts(item.get("content"))})
        case _:
            answer = _answer(messages)
            answer["content"] = (answer.get("content") or "") + compact(dict(item))


def _answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of the assistant that is being put together."""
    if not messages or messages[-1].get("role") != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return "" if content is None else compact(content)
    texts = []
    for part in content:
        known = isinstance(part, Mapping) and part.get("type") in _TEXTS
        texts.append(str(part.get("text", part.get("refusal", ""))) if known else compact(part))
    return "".join(texts)


def _parts(content: Any) -> Any:
    """Content of a user or of the system, with parts in the spelling of chat."""
    if not isinstance(content, list):
        return content
    parts: list[Any] = []
    for part in content:
        if isinstance(part, Mapping) and part.get("type") in _TEXTS:
            parts.append({"type": "text", "text": part.get("text", "")})
        elif isinstance(part, Mapping) and part.get("type") == "input_image" and "image_url" in part:
            parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
        else:
            parts.append(part)
    return parts
