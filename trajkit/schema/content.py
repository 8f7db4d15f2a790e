"""Messages: a role and typed content blocks.

Blocks have the shapes that TensorZero stores, so that common blocks need no conversion. Content without a
type of its own is kept verbatim in an `UnknownBlock`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trajkit.schema.base import Json, Model, Text


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TextBlock(Model):
    """Plain text."""

    type: Literal["text"] = "text"
    text: Text
    """The text as the model saw or wrote it; may be empty."""


class ThoughtBlock(Model):
    """Reasoning of a model before its answer."""

    type: Literal["thought"] = "thought"
    text: Text | None = None
    """The reasoning; None when the provider gave only a signature or a summary."""
    signature: Text | None = None
    """The provider's signature of the reasoning."""
    summary: tuple[Json, ...] | None = None
    """The provider's summary of the reasoning, verbatim."""
    provider_type: Text | None = None
    """The provider that gave the reasoning."""
    extra_data: Json = None
    """Other data that the provider attached."""


class ToolCallBlock(Model):
    """A call of a tool by the model."""

    type: Literal["tool_call"] = "tool_call"
    id: Text
    """The id of the call, which its result repeats."""
    name: Text
    """The tool's name as the model wrote it."""
    arguments: Text
    """The arguments as the model wrote them: JSON as text, which may be invalid."""


class ToolResultBlock(Model):
    """The result of a tool call."""

    type: Literal["tool_result"] = "tool_result"
    id: Text
    """The id of the tool call."""
    name: Text
    """The tool's name."""
    result: Text
    """The result as text."""


class FileBlock(Model):
    """A reference to a file. A store never contains the bytes of the file."""

    type: Literal["file"] = "file"
    source_url: Text | None = None
    """The URL of the file; None when it was sent inline."""
    mime_type: Text | None = None
    """Media type, such as `image/png`."""
    storage_path: Json = None
    """The place where the gateway stored the bytes, in the gateway's own form."""
    detail: Text | None = None
    """The detail (resolution) that was requested for an image."""
    filename: Text | None = None
    """The name of the file."""


class UnknownBlock(Model):
    """Content of a type that trajkit does not support, kept verbatim."""

    type: Literal["unknown"] = "unknown"
    data: Json
    """The content, verbatim."""
    model_name: Text | None = None
    """The model that the content is for."""
    provider_name: Text | None = None
    """The provider that the content is for."""


Block = Annotated[
    TextBlock | ThoughtBlock | ToolCallBlock | ToolResultBlock | FileBlock | UnknownBlock,
    Field(discriminator="type"),
]
"""A block of a message's content."""


class Message(Model):
    """One turn of a conversation."""

    role: Role
    """The author of the message."""
    content: tuple[Block, ...]
    """The blocks in order; may be empty."""

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines; "" when there is none."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


def message(role: Role | str, text: str) -> Message:
    """Make a message with one text block."""
    return Message(role=Role(role), content=(TextBlock(text=text),))
