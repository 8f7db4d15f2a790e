"""Rows for tuning Gemini on Google's Vertex AI: contents of parts, with the system instruction beside them.

Google does not document whether only the model's last turn is learned, so every turn is assumed to be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trajkit.formats.base import (
    Example,
    Loss,
    LossKind,
    Mask,
    PlainText,
    Problem,
    Row,
    SftFormat,
    Unit,
)
from trajkit.formats.chat.rows import arguments_object, functions, lost_kind, misplaced_calls
from trajkit.schema import (
    Block,
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from trajkit.schema.base import JsonObject

_ROLES = {Role.USER: "user", Role.TOOL: "user", Role.ASSISTANT: "model"}


class _Writer:
    """Writes the contents of one example."""

    def __init__(self) -> None:
        self.contents: list[dict[str, Any]] = []
        self.system: list[dict[str, Any]] = []
        self.losses: list[Loss] = []
        self.problems: list[Problem] = []

    def add(self, message: Message, where: str) -> None:
        self.problems.extend(misplaced_calls(message, where))
        if message.role == Role.TOOL and any(isinstance(b, TextBlock | FileBlock) for b in message.content):
            self.problems.append(Problem("tool message with more than tool results", where))
        parts = [
            part
            for index, block in enumerate(message.content)
            if (part := self._part(block, f"{where}.content.{index}"))
        ]
        if message.role == Role.SYSTEM:
            if self.contents or self.system:
                self.problems.append(Problem("system message that is not the first", where))
            self.system.extend(parts)
            return
        role = _ROLES[message.role]
        if not parts:
            if not message.content or not all(isinstance(b, ThoughtBlock) for b in message.content):
                self.problems.append(Problem(f"empty {role} message", where))
            return
        if role == "user" and self.contents and self.contents[-1]["role"] == role:
            self.losses.append(Loss(LossKind.JOINED_MESSAGE, where))
            self.contents[-1]["parts"].extend(parts)
            return
        self.contents.append({"role": role, "parts": parts})

    def _part(self, block: Block, where: str) -> dict[str, Any] | None:
        match block:
            case TextBlock():
                return {"text": block.text} if block.text else None
            case ToolCallBlock():
                self.losses.append(Loss(LossKind.TOOL_CALL_ID, where))
                return {
                    "functionCall": {
                        "name": block.name,
                        "args": arguments_object(block, where, self.problems),
                    }
                }
            case ToolResultBlock():
                self.losses.append(Loss(LossKind.TOOL_CALL_ID, where))
                return {"functionResponse": {"name": block.name, "response": {"result": block.result}}}
            case ThoughtBlock():
                self.losses.append(Loss(LossKind.THOUGHT, where))
                return None
            case FileBlock(source_url=str(url), mime_type=str(kind)) if url.startswith("gs://"):
                if block.filename or block.detail or block.storage_path:
                    self.losses.append(Loss(LossKind.FILE_FIELD, where))
                return {"fileData": {"mimeType": kind, "fileUri": url}}
            case _:
                self.losses.append(Loss(lost_kind(block) or LossKind.UNKNOWN_BLOCK, where))
                return None


def _row(example: Example) -> Row:
    writer = _Writer()
    for position, (message, weight) in enumerate(zip(example.messages, example.weights, strict=True)):
        if weight not in (0, 1):
            writer.losses.append(Loss(LossKind.PARTIAL_WEIGHT, f"messages.{position}"))
        writer.add(message, f"messages.{position}")
    value: dict[str, Any] = {}
    if writer.system:
        value["systemInstruction"] = {"role": "system", "parts": writer.system}
    value["contents"] = writer.contents
    if declared := _declared(example.tools, writer.losses):
        value["tools"] = [{"functionDeclarations": declared}]
    roles = [content["role"] for content in writer.contents]
    if roles[-1:] != ["model"]:
        writer.problems.append(Problem("the last message is not the model's", "contents"))
    if roles[:1] != ["user"]:
        writer.problems.append(Problem("conversation that does not begin with the user", "contents"))
    return Row(value, tuple(writer.losses), tuple(writer.problems))


def _declared(tools: Sequence[JsonObject], losses: list[Loss]) -> list[dict[str, Any]]:
    declared = []
    for position, tool in enumerate(functions(tools, losses)):
        function = tool["function"]
        if function.pop("strict", None) is not None:
            losses.append(Loss(LossKind.TOOL_FIELD, f"tools.{position}.strict"))
        declared.append(function)
    return declared


def _read(value: JsonObject) -> Example:
    row: Any = value
    messages = []
    if system := row.get("systemInstruction"):
        messages.append(Message(role=Role.SYSTEM, content=tuple(map(_block, system["parts"]))))
    for content in row["contents"]:
        role = Role.ASSISTANT if content["role"] == "model" else Role.USER
        messages.append(Message(role=role, content=tuple(map(_block, content["parts"]))))
    weights = tuple(float(message.role == Role.ASSISTANT) for message in messages)
    tools = [tool for each in row.get("tools") or () for tool in each["functionDeclarations"]]
    return Example(tuple(messages), weights, tuple(tools))


def _block(part: dict[str, Any]) -> Block:
    match part:
        case {"functionCall": {"name": name, "args": arguments}}:
            return ToolCallBlock(id="", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
        case {"functionResponse": {"name": name, "response": {"result": result}}}:
            return ToolResultBlock(id="", name=name, result=result)
        case {"fileData": {"mimeType": kind, "fileUri": url}}:
            return FileBlock(source_url=url, mime_type=kind)
        case _:
            return TextBlock(text=part["text"])


def _plain(unit: Unit) -> PlainText:
    model = '{"role":"model","parts":[{"text":"'
    return PlainText(
        before={"user": '{"role":"user","parts":[{"text":"'},
        learned=model,
        after='"}]}',
        last="," + model,
        tail='"}]}]}',
        head='"contents":[',
        system=('"systemInstruction":{"role":"system","parts":[{"text":"', '"}]},'),
        opening="{",
        alternates=True,
    )


_CONTENT = "STRUCT(role VARCHAR, parts JSON[])"

VERTEX = SftFormat(
    name="vertex",
    about="tuning Gemini on Google's Vertex AI",
    row=_row,
    read=_read,
    columns={"systemInstruction": _CONTENT, "contents": f"{_CONTENT}[]", "tools": "JSON[]"},
    masks={Unit.STEP: Mask.ALL, Unit.EPISODE: Mask.ALL},
    plain=_plain,
)
"""Rows for Vertex AI's supervised tuning."""
