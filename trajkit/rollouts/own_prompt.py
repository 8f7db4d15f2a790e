"""trajkit's own prompt, used without a gateway's templates, and the parser of its answers.

`docs/agents.md` has its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import JsonValue, TypeAdapter, ValidationError

from trajkit.environments.base import ActionRule
from trajkit.rollouts.gateway_policy import history_text
from trajkit.rollouts.policies import Situation
from trajkit.schema import Message, Role, TextBlock
from trajkit.schema.base import Json, JsonObject

MOST_LISTED = 500
"""With more actions, the prompt lists none and the schema allows any text, because servers limit enums."""


class JsonMode(StrEnum):
    """How the answer is constrained to a readable form."""

    AUTO = "auto"
    """A schema, or a weaker constraint once the server refuses that."""
    SCHEMA = "schema"
    """A JSON schema that lists the actions."""
    OBJECT = "object"
    """`{"type": "json_object"}`: any JSON object."""
    OFF = "off"
    """Only the prompt; the answer is the action itself."""


class OwnPrompt(NamedTuple):
    """trajkit's own prompt at one step, and the parser of its answer."""

    situation: Situation
    actions: tuple[str, ...]
    """The actions to choose from; empty when any text may be one."""
    is_fixed: bool
    """Whether the actions are the same at every step."""
    history: int
    thinking: bool
    mode: JsonMode
    input: JsonValue = None
    tools: tuple[JsonObject, ...] | None = None
    tool_choice: str | None = None

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages."""
        system = [
            f"You act in a world that is shown to you as text. Your mission: {self.situation.mission}",
            "You choose one action at a time, and then see what it brought about.",
        ]
        user = []
        if past := history_text(self.situation.past, self.history):
            user.append(f"History:\n{past}")
        user.append(f"Observation:\n{self.situation.observation}")
        if self.actions:
            listed = ["The actions:", *(f"- {action}" for action in self.actions)]
            (system if self.is_fixed else user).append("\n".join(listed))
        user.append(self._wanted())
        return [
            {"role": "system", "content": "\n\n".join(system)},
            {"role": "user", "content": "\n\n".join(user)},
        ]

    def _wanted(self) -> str:
        which = "exactly one of the actions listed" if self.actions else "the action"
        if self.mode == JsonMode.OFF:
            return f"Answer with {which}, and nothing else."
        example = {"thinking": "…"} if self.thinking else {}
        shape = json.dumps({**example, "action": "…"}, ensure_ascii=False)
        reason = ' First reason in "thinking", in a few sentences.' if self.thinking else ""
        return f'Answer with one JSON object and nothing else: {shape}.{reason} "action" is {which}.'

    def response_format(self) -> dict[str, JsonValue] | None:
        """Return the request's `response_format`."""
        if self.mode == JsonMode.OBJECT:
            return {"type": "json_object"}
        if self.mode == JsonMode.OFF:
            return None
        json_schema: dict[str, JsonValue] = {"name": "action", "strict": True, "schema": self._schema()}
        return {"type": "json_schema", "json_schema": json_schema}

    @property
    def json_schema(self) -> Mapping[str, Any] | None:
        """The schema of the actions; a weaker one, or None, depending on the mode."""
        if self.mode == JsonMode.OFF:
            return None
        return {"type": "object"} if self.mode == JsonMode.OBJECT else self._schema()

    def _schema(self) -> dict[str, JsonValue]:
        action: dict[str, JsonValue] = {"type": "string"}
        if self.actions:
            action["enum"] = list(self.actions)
        thinking: dict[str, JsonValue] = {"thinking": {"type": "string"}} if self.thinking else {}
        properties: dict[str, JsonValue] = {**thinking, "action": action}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def action(self, answer: Message) -> JsonValue:
        """Return the action in an answer."""
        return read_action(answer.text, self.actions, self.mode)

    def answer(self, action: str) -> Message:
        """Return an action as an answer to the prompt."""
        if self.mode != JsonMode.OFF:
            thinking = {"thinking": ""} if self.thinking else {}
            action = json.dumps({**thinking, "action": action}, ensure_ascii=False)
        return Message(role=Role.ASSISTANT, content=(TextBlock(text=action),))


class OwnPrompts:
    """Writes trajkit's own prompts.

    Args:
        rule: The environment's rule for answers; None when the legal actions depend on the state.
        history: Number of latest steps to show.
        mode: How the answer is constrained.
        thinking: Whether to ask for reasoning before the action.
    """

    function_name: str | None = None
    variant_name: str | None = None

    def __init__(
        self,
        rule: ActionRule | None,
        *,
        history: int,
        mode: JsonMode = JsonMode.AUTO,
        thinking: bool = False,
    ) -> None:
        self._rule, self._history, self._mode, self._thinking = rule, history, mode, thinking
        self.digest = "own"

    def of(self, situation: Situation) -> OwnPrompt:
        """Return the prompt of a situation."""
        rule = self._rule
        actions = rule.actions if rule else situation.environment.legal_actions()
        listed = actions if len(actions) <= MOST_LISTED else ()
        return OwnPrompt(situation, listed, rule is not None, self._history, self._thinking, self._mode)


_JSON: TypeAdapter[JsonValue] = TypeAdapter(Json)
_FENCED = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)


def read_action(raw: str | None, actions: Sequence[str], mode: JsonMode) -> JsonValue:
    """Parse the action in an answer; None when it names none.

    Args:
        raw: The answer's text; None when there is none.
        actions: The listed actions; empty when any text may be one.
        mode: Constraint of the answer. Only with `OFF` is any text an action.
    """
    text = (raw or "").strip()
    found = _json(text)
    if isinstance(found, dict):
        return found.get("action")
    for said in (text, found):
        if isinstance(said, str) and said in actions:
            return said
    return text or None if mode == JsonMode.OFF else None


def _json(text: str) -> JsonValue:
    """Parse the JSON of a text, or of its first fenced block; None when there is none."""
    fenced = _FENCED.search(text)
    for candidate in (text, fenced[1] if fenced else ""):
        try:
            return _JSON.validate_json(candidate)
        except ValidationError:
            continue
    return None
