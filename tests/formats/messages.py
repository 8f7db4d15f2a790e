"""Messages, calls and results as the tests of training rows write them."""

from __future__ import annotations

from typing import Any

from trajkit.schema import Message


def said(role: str, *blocks: Any) -> Message:
    """A message of blocks, of which a text stands for its block."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return Message.model_validate({"role": role, "content": content})


def call(call_id: str = "c1", name: str = "look", arguments: str = '{"at": "door"}') -> dict[str, Any]:
    """A call of a tool."""
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def result(call_id: str = "c1", name: str = "look", text: str = "locked") -> dict[str, Any]:
    """The result of a call."""
    return {"type": "tool_result", "id": call_id, "name": name, "result": text}
