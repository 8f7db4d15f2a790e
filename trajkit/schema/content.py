"""What is said: a message is a role and typed content blocks.

Blocks follow the shapes that TensorZero stores, so that the common ones pass through unchanged; whatever has
no type of its own is kept verbatim in an `UnknownBlock`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trajkit.schema.base import Json, Model, Text


class Role(StrEnum):
    """Who speaks."""

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
    """Reasoning that a model gave beside its answer."""

    type: Literal["thought"] = "thought"
    text: Text | None = None
    """The reasoning; None when the provider gave only a signature or a summary."""
    signature: Text | None = None
    """The provider's opaque proof of the reasoning."""
    summary: tuple[Json, ...] | None = None
    """The provider's summary of the reasoning, as it came."""
    provider_type: Text | None = None
    """Which provider the reasoning belongs to."""
    extra_data: Json = None
    """What else the provider attached."""


class ToolCallBlock(Model):
    """The model asks for a tool."""

    type: Literal["tool_call"] = "tool_call"
    id: Text
    """Pairs the call with its result."""
    name: Text
    """The tool's name as the model wrote it."""
    arguments: Text
    """The arguments as the model wrote them: a JSON text, which may be invalid."""


class ToolResultBlock(Model):
    """What a tool returned."""

    type: Literal["tool_result"] = "tool_result"
    id: Text
    """The id of the call that this answers."""
    name: Text
    """The tool's name."""
    result: Text
    """What the tool returned, as text."""


class FileBlock(Model):
    """A reference to a file; its bytes are never in a store."""

    type: Literal["file"] = "file"
    source_url: Text | None = None
    """Where the file came from; None when it was sent inline."""
    mime_type: Text | None = None
    """Media type, such as `image/png`."""
    storage_path: Json = None
    """Where the gateway kept the bytes, as it wrote it."""
    detail: Text | None = None
    """Resolution asked of the model for an image."""
    filename: Text | None = None
    """The file's name."""


class UnknownBlock(Model):
    """Content of a kind that trajkit has no type for, kept verbatim."""

    type: Literal["unknown"] = "unknown"
    data: Json
    """The content as it came."""
    model_name: Text | None = None
    """Model that the content is meant for."""
    provider_name: Text | None = None
    """Provider that the content is meant for."""


Block = Annotated[
    TextBlock | ThoughtBlock | ToolCallBlock | ToolResultBlock | FileBlock | UnknownBlock,
    Field(discriminator="type"),
]
"""One piece of a message's content."""


class Message(Model):
    """One turn of a conversation."""

    role: Role
    """Who speaks."""
    content: tuple[Block, ...]
    """The pieces in order; may be empty."""

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines; "" when there is none."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


def message(role: Role | str, text: str) -> Message:
    """A message of one text block."""
    return Message(role=Role(role), content=(TextBlock(text=text),))
