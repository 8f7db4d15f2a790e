"""The protocol for the prompt of one step, whatever writes it, and for reading its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import JsonValue

from trajkit.formats.chat_message import read_messages
from trajkit.rollouts.policies import Situation
from trajkit.schema import Message
from trajkit.schema.base import JsonObject


class Prompt(Protocol):
    """A prompt, and the meaning of its answers."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages, in OpenAI's shape."""
        ...

    @property
    def json_schema(self) -> Mapping[str, Any] | None:
        """What the answer is held to; None for any text."""
        ...

    @property
    def tools(self) -> tuple[JsonObject, ...] | None:
        """What the model may call, as a store has it; None for nothing."""
        ...

    @property
    def tool_choice(self) -> str | Mapping[str, Any] | None:
        """OpenAI's `tool_choice`; None where there are no tools."""
        ...

    @property
    def input(self) -> JsonValue:
        """The input as a gateway stores it; None where there is no function of a gateway."""
        ...

    def action(self, answer: Message) -> JsonValue:
        """The action that an answer names; None when it names none."""
        ...

    def answer(self, action: str) -> Message:
        """The answer of a model that chooses an action."""
        ...


class Prompts(Protocol):
    """Writes the prompts of an episode."""

    @property
    def function_name(self) -> str | None:
        """The gateway's function that they are of; None for none."""
        ...

    @property
    def variant_name(self) -> str | None:
        """The variant of it; None for none."""
        ...

    @property
    def digest(self) -> str:
        """A hash of everything that the prompts are made from, except the situation."""
        ...

    def of(self, situation: Situation) -> Prompt:
        """The prompt of a situation.

        Raises:
            DataError: It cannot be written.
        """
        ...


def as_asked(prompt: Prompt) -> tuple[Message, ...]:
    """The messages of a prompt as a store keeps them."""
    return read_messages(prompt.messages)
