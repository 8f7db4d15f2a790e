"""Read parts of messages in the spelling of OpenAI's APIs and compatible ones: content, files, tools."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

from trajkit.schema import Block, FileBlock, TextBlock, UnknownBlock
from trajkit.schema.base import JsonObject

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
_AUDIO_TYPES = {"mp3": "audio/mpeg", "pcm16": "audio/pcm"}


def text_of(value: Any) -> str:
    """Return a text as it is, null as the empty text, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def rest_of(value: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return the fields that are not known and not empty."""
    known = frozenset(known)
    return {
        name: item for name, item in value.items() if name not in known and item not in (None, [], {}, "")
    }


def unknown(value: Any) -> UnknownBlock:
    """Return content without a type of its own, verbatim except for the bytes of files."""
    return UnknownBlock(data=_without_bytes(value))


def part_blocks(part: Any) -> list[Block]:
    """Return the blocks of a part of a message's content."""
    if isinstance(part, str):
        return [TextBlock(text=part)]
    kind = str(part.get("type")) if isinstance(part, dict) else None
    if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
        blocks: list[Block] = [TextBlock(text=part["text"])]
        if rest := rest_of(part, ("type", "text", "logprobs", "parsed")):
            blocks.append(unknown({"beside": "text", **rest}))
        return blocks
    match kind:
        case "image_url" if isinstance(part.get("image_url"), dict):
            return [
                file_block(part["image_url"].get("url"), detail=part["image_url"].get("detail"), kind="image")
            ]
        case "input_image":
            return [
                file_block(
                    part.get("image_url"),
                    detail=part.get("detail"),
                    file_id=part.get("file_id"),
                    kind="image",
                )
            ]
        case "file" if isinstance(part.get("file"), dict):
            return [_file_part(part["file"])]
        case "input_file":
            return [_file_part(part)]
        case "input_audio" if isinstance(part.get("input_audio"), dict):
            audio = part["input_audio"]
            name = str(audio.get("format") or "wav")
            return [
                file_block(f"data:{_AUDIO_TYPES.get(name, f'audio/{name}')};base64,{audio.get('data') or ''}")
            ]
        case _:
            return [unknown(part)]


def content_blocks(content: Any) -> list[Block]:
    """Return the blocks of a message's content: a text, a list of parts, or null."""
    if content is None:
        return []
    if isinstance(content, list):
        return [block for part in content for block in part_blocks(part)]
    return [TextBlock(text=content)] if isinstance(content, str) else [unknown(content)]


def tool_of(tool: Any) -> JsonObject:
    """Return a tool as `{name, description, parameters, strict}`; one that is not a function unchanged."""
    if not isinstance(tool, dict):
        return {"tool": tool}
    if tool.get("type") == "function" and isinstance(tool.get("function"), dict):
        tool = {**tool["function"], **{k: v for k, v in tool.items() if k not in ("type", "function")}}
    elif tool.get("type") == "function":
        tool = {name: value for name, value in tool.items() if name != "type"}
    elif "type" in tool or "name" not in tool:
        return dict(tool)
    first = {name: tool[name] for name in _FUNCTION_FIELDS if tool.get(name) is not None}
    return {**first, **rest_of(tool, _FUNCTION_FIELDS)}


def clean(value: Any) -> Any:
    """Replace what a store cannot hold in JSON: half of a surrogate pair, NaN and infinities."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case float() if not math.isfinite(value):
            return str(value)
        case list():
            return [clean(item) for item in value]
        case dict():
            return {clean(name): clean(item) for name, item in value.items()}
        case _:
            return value


def _file_part(file: dict[str, Any]) -> FileBlock:
    url, data = file.get("file_url"), file.get("file_data")
    if not url and isinstance(data, str):
        url = data if data.startswith("data:") or "://" in data else f"data:;base64,{data}"
    return file_block(
        url, filename=file.get("filename"), file_id=file.get("file_id"), detail=file.get("detail")
    )


def file_block(
    url: Any,
    *,
    detail: str | None = None,
    filename: str | None = None,
    file_id: str | None = None,
    kind: str | None = None,
) -> FileBlock:
    """Return a reference to a file; for an inline file, its type, size and sha256."""
    place: JsonObject = {} if file_id is None else {"file_id": file_id}
    mime_type = f"{kind}/*" if kind else None
    inline = _inline(url) if isinstance(url, str) else None
    if inline is not None:
        mime_type = inline.pop("mime_type", None) or mime_type
        place |= inline
    return FileBlock(
        source_url=url if isinstance(url, str) and inline is None else None,
        mime_type=mime_type,
        storage_path=place or None,
        detail=detail,
        filename=filename,
    )


def _inline(url: str) -> dict[str, Any] | None:
    """Return type, sha256 and size of a data URL or of bare base64; None for another URL."""
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
    elif "://" not in url and len(url) > 64:
        head, data = "", url
    else:
        return None
    try:
        raw = base64.b64decode(data) if not head or head.endswith(";base64") else data.encode()
    except (binascii.Error, ValueError):
        raw = data.encode("utf-8", "surrogatepass")
    facts = {"mime_type": head.partition(";")[0] or None}
    return {**facts, "sha256": hashlib.sha256(raw).hexdigest(), "n_bytes": len(raw)}


def _without_bytes(value: Any) -> Any:
    """Replace the bytes of files, at any depth, by their type, size and sha256."""
    if isinstance(value, list):
        return [_without_bytes(item) for item in value]
    if not isinstance(value, dict):
        return _inline(value) if isinstance(value, str) and value.startswith("data:") else value
    bare = {"image_generation_call": ("result",)}.get(str(value.get("type")), ())
    if "transcript" in value and "data" in value:  # audio of an answer
        bare = ("data",)
    return {
        name: _inline(item) or item if name in bare and isinstance(item, str) else _without_bytes(item)
        for name, item in value.items()
    }
