"""Read the parts of ATIF steps as blocks and messages: content, tool calls, results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from trajkit.formats.chat.parts import file_block
from trajkit.formats.profile import KEY
from trajkit.formats.reading.document import BadDocument, object_at, objects_at, part_of, shown, text_at

_OUTSIDE = re.compile(r"^(?:[/\\]|[A-Za-z]:[/\\]|~)|(?:^|[/\\])\.\.(?:[/\\]|$)")


def is_outside(path: str) -> bool:
    """Whether a path, which is not a URL, leads out of the folder that it is relative to."""
    return "://" not in path and _OUTSIDE.search(path) is not None


def refuse_outside(path: str, where: str) -> None:
    """Refuse a path that leads out of the folder of its document.

    Raises:
        BadDocument: It does.
    """
    if is_outside(path):
        raise BadDocument("a path that leads out of its folder", where, shown(path))


def content_of(message: Any, where: str) -> list[dict[str, Any]]:
    """Return the blocks of a message, which is text or a list of parts.

    Raises:
        BadDocument: It is neither, or refers to a file outside its folder.
    """
    if isinstance(message, str):
        return [{"type": "text", "text": message}] if message else []
    if message is None:
        raise BadDocument("no message", where)
    blocks: list[dict[str, Any]] = []
    for position, part in enumerate(objects_at(message, where)):
        blocks.append(_part(part, f"{where}.{position}"))
    return blocks


def _part(part: dict[str, Any], where: str) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": "text", "text": text_at(part.get("text"), f"{where}.text")}
    if part.get("type") not in ("image", "audio"):
        raise BadDocument("not a kind of part", f"{where}.type", shown(part.get("type")))
    source = object_at(part.get("source"), f"{where}.source")
    path = text_at(source.get("path"), f"{where}.source.path")
    if path.startswith("data:"):
        return file_block(path).model_dump(exclude_none=True)
    refuse_outside(path, f"{where}.source.path")
    block = {"type": "file", "source_url": path, "mime_type": source.get("media_type") or f"{part['type']}/*"}
    if source.get("duration_sec") is not None:
        block["storage_path"] = {"duration_sec": source["duration_sec"]}
    return block


def calls_of(calls: Sequence[dict[str, Any]], names: dict[str, str], where: str) -> Iterator[dict[str, Any]]:
    """Yield the blocks of tool calls, and add the names of the tools to `names` by call id.

    Raises:
        BadDocument: A call is invalid, or an id is repeated.
    """
    for position, call in enumerate(calls):
        at = f"{where}.tool_calls.{position}"
        call_id, name = text_at(call.get("tool_call_id"), f"{at}.tool_call_id"), call.get("function_name")
        if call_id in names:
            raise BadDocument("a tool call id that is there twice", f"{at}.tool_call_id", shown(call_id))
        names[call_id] = text_at(name, f"{at}.function_name")
        rest = part_of(call, "extra", at).get(KEY)
        arguments = compact(object_at(call.get("arguments"), f"{at}.arguments"))
        if not is_finite(arguments):
            raise BadDocument("a number that is not finite", f"{at}.arguments", shown(arguments))
        if isinstance(rest, str):
            arguments = rest
        yield {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def is_finite(text: str) -> bool:
    """Whether JSON of `compact` has only finite numbers: Python reads 1e999 as infinity."""
    if "Infinity" not in text:
        return True
    try:
        from_json(text, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def compact(value: Any) -> str:
    """Write JSON as models mostly do: without spaces."""
    return to_json(value).decode()


def results_of(step: dict[str, Any], names: dict[str, str], where: str) -> Iterator[dict[str, Any]]:
    """Yield the observation as messages: with role tool if it has a call id, else user.

    Raises:
        BadDocument: A result has an id that no call of this step has.
    """
    observation = step.get("observation")
    if observation is None:
        return
    results = objects_at(
        object_at(observation, f"{where}.observation").get("results"), f"{where}.observation.results"
    )
    for position, result in enumerate(results):
        at = f"{where}.observation.results.{position}"
        content = content_of(result.get("content") or "", f"{at}.content")
        call_id = result.get("source_call_id")
        if call_id is None:
            yield {"role": "user", "content": content}
            continue
        if not isinstance(call_id, str) or call_id not in names:
            raise BadDocument("a tool result without its call", f"{at}.source_call_id", shown(call_id))
        text = "".join(block["text"] for block in content if block["type"] == "text")
        others = [block for block in content if block["type"] != "text"]
        own = {"type": "tool_result", "id": call_id, "name": names[call_id], "result": text}
        yield {"role": "tool", "content": [own, *others]}
