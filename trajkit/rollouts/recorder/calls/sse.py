"""Assemble a streamed answer from its server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import from_json

_DATA = b"data: "
_LINE_END = re.compile(rb"\r\n|\r|\n")


def events(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream, in order; other events, such as `[DONE]`, are skipped."""
    yield from _plain_events(body) or _events(body)


def _plain_events(body: bytes) -> list[dict[str, Any]]:
    """Parse events of one line each at once, which most services send; empty for any other stream."""
    found = [piece[len(_DATA) :] for piece in body.split(b"\n\n") if piece.startswith(_DATA + b"{")]
    if len(found) != body.count(b"data:") - body.count(_DATA + b"[DONE]"):
        return []
    try:
        values = from_json(b"[" + b",".join(found) + b"]")
    except ValueError:
        return []
    return values if len(values) == len(found) else []


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    data: list[bytes] = []
    for line in (*_LINE_END.split(body), b""):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            value = json_object(b"\n".join(data))
            if value is not None:  # not `[DONE]`, nor the last event of an interrupted stream
                yield value
            data = []


def json_object(body: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None when it is anything else."""
    try:
        value = from_json(body)  # several times as fast as json, but stricter
    except ValueError:
        try:
            value = json.loads(body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def chat_completion(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Assemble a chat completion from its chunks; an interrupted stream gives what was received."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for name, value in chunk.items():
            if name != "choices" and value is not None:
                whole[name] = value
        for part in chunk.get("choices") or ():
            choice = choices.setdefault(part.get("index") or 0, {"message": {"role": "assistant"}})
            for name, value in part.items():
                if name == "delta":
                    _add(choice["message"], value or {})
                elif name == "logprobs":
                    _add(choice.setdefault("logprobs", {}), value or {})
                elif name == "token_ids":
                    choice["token_ids"] = (choice.get("token_ids") or []) + (value or [])
                elif value is not None:
                    choice[name] = value
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def response(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the response at the end of the events; an interrupted stream gives what was received."""
    whole: dict[str, Any] = {}
    items: dict[int, dict[str, Any]] = {}
    for event in found:
        index = event.get("output_index", 0)
        match event.get("type"):
            case "response.completed" | "response.incomplete" | "response.failed":
                return dict(event.get("response") or {})
            case "response.output_item.added" | "response.output_item.done":
                items[index] = dict(event.get("item") or {})
            case "response.output_text.delta" | "response.refusal.delta":
                _say(items.setdefault(index, {"type": "message", "role": "assistant"}), event)
            case "response.function_call_arguments.delta":
                item = items.setdefault(index, {"type": "function_call"})
                item["arguments"] = (item.get("arguments") or "") + (event.get("delta") or "")
            case _:
                if isinstance(event.get("response"), dict):
                    whole = dict(event["response"])
    return {**whole, "output": [items[index] for index in sorted(items)]}


def _say(item: dict[str, Any], event: dict[str, Any]) -> None:
    """Add a piece of text to its part of a message."""
    kind, name = ("refusal", "refusal") if "refusal" in event["type"] else ("output_text", "text")
    parts = item["content"] = list(item.get("content") or ())
    index = event.get("content_index") or 0
    while len(parts) <= index:
        parts.append({"type": kind, name: ""})
    parts[index] = {**parts[index], name: (parts[index].get(name) or "") + (event.get("delta") or "")}


def _add(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Merge a delta: texts are appended, numbered parts are merged, other values are replaced."""
    for name, value in delta.items():
        before = whole.get(name)
        if value is None:
            whole.setdefault(name, None)
        elif before is None or name in ("role", "index", "type", "id"):
            whole[name] = _numbered([], value) if isinstance(value, list) else value
        elif isinstance(value, str) and isinstance(before, str):
            whole[name] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            _add(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            whole[name] = _numbered(before, value)
        else:
            whole[name] = value


def _numbered(before: list[Any], parts: list[Any]) -> list[Any]:
    for part in parts:
        if not isinstance(part, dict) or "index" not in part:
            before.append(part)
            continue
        same = [one for one in before if isinstance(one, dict) and one.get("index") == part["index"]]
        if same:
            _add(same[0], part)
        else:
            before.append(dict(part))
    return before
