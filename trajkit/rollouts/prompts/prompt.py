"""The protocol for the prompt of one step, and for parsing its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import JsonValue

from trajkit.formats.chat.message import read_messages
from trajkit.rollouts.policies import Situation
from trajkit.schema import Message
from trajkit.schema.base import JsonObject


class Prompt(Protocol):
    """A prompt, and the parser of its answers."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages, in OpenAI's format."""
        ...

    @property
    def json_schema(self) -> Mapping[str, Any] | None:
        """Schema that constrains the answer; None for any text."""
        ...

    @property
    def tools(self) -> tuple[JsonObject, ...] | None:
        """Tools that the model may call, in the store's form; None for none."""
        ...

    @property
    def tool_choice(self) -> str | Mapping[str, Any] | None:
        """OpenAI's `tool_choice`; None where there are no tools."""
        ...

    @property
    def input(self) -> JsonValue:
        """The input in the gateway's stored form; None without a gateway's function."""
        ...

    def action(self, answer: Message) -> JsonValue:
        """Return the action in an answer; None when it names none."""
        ...

    def answer(self, action: str) -> Message:
        """Return the answer of a model that chooses an action."""
        ...


class Prompts(Protocol):
    """Writes the prompts of an episode."""

    @property
    def function_name(self) -> str | None:
        """The gateway's function of the prompts; None for none."""
        ...

    @property
    def variant_name(self) -> str | None:
        """The variant of the prompts; None for none."""
        ...

    @property
    def digest(self) -> str:
        """Hash of everything that the prompts are made from, except for the situation."""
        ...

    def of(self, situation: Situation) -> Prompt:
        """Return the prompt of a situation.

        Raises:
            DataError: It cannot be rendered.
        """
        ...


def as_asked(prompt: Prompt) -> tuple[Message, ...]:
    """Return the messages of a prompt in the store's form."""
    return read_messages(prompt.messages)
