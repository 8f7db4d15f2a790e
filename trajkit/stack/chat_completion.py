"""Answer an OpenAI chat completion request with the rule player, as a pure function.

An answer depends only on the request (its messages, `seed` and response format) and on the player's settings.
Temperature, token limits and other sampling options have no effect.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trajkit.formats.chat.request import Part, Refusal, ResponseFormat, Wire, request_of
from trajkit.stack.rule_player import ACTIONS, play
from trajkit.stack.rule_prompt import Message, read_prompt

MODEL = "rule-player-not-a-language-model"
INVALID_ANSWERS = ("turn around", "move ahead", "grab it", "open the door", "wait")
"""Answers outside the action set, for a player that sometimes answers with an invalid action."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


class _ChatMessage(Wire):
    role: str
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text or "" for part in self.content or [])


class ChatRequest(Wire):
    """The fields that the rule player reads of a request."""

    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    seed: int | None = None
    response_format: ResponseFormat | None = None
    n: int | None = None
    stream: bool | None = None
    tools: list[Any] | None = None


class Player(BaseModel):
    """Settings of the rule player's mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    mistakes: float = Field(default=0.2, ge=0, le=1)
    """Share of answers that are replaced by another random action."""
    invalid: float = Field(default=0.01, ge=0, le=1)
    """Share of answers without an action. An enum in the request's schema prevents them."""
    seed: int = 0
    """Seed of the mistakes."""


def read_request(body: bytes) -> ChatRequest:
    """Read a request body.

    Raises:
        Refusal: It is not JSON, not a chat completion request, or asks for an unsupported feature.
    """
    try:
        request = request_of(ChatRequest, json.loads(body))
    except (ValueError, RecursionError) as error:
        raise Refusal("the body is not valid JSON") from error
    if request.stream:
        raise Refusal("the rule player does not stream", param="stream")
    if request.n not in (None, 1):
        raise Refusal("the rule player gives one answer per request", param="n")
    if request.tools:
        raise Refusal("the rule player calls no tools", param="tools")
    return request


def complete(
    request: ChatRequest, player: Player, *, completion_id: str, created_at_s: int
) -> dict[str, Any]:
    """Answer a request in the format of an OpenAI chat completion.

    Token counts are estimates: one per word, number or punctuation mark.

    Args:
        request: The request.
        player: Settings of the player.
        completion_id: Id of the answer.
        created_at_s: Unix time of the answer.

    Raises:
        Refusal: The response format needs properties other than an action and a reason.
    """
    properties = _properties(request.response_format)
    content = json.dumps(_answer(request, player, properties), ensure_ascii=False)
    n_prompt = sum(len(_TOKEN.findall(message.text)) for message in request.messages)
    n_completion = len(_TOKEN.findall(content))
    message = {"role": "assistant", "content": content, "refusal": None}
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": created_at_s,
        "model": request.model,
        "system_fingerprint": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_completion,
            "total_tokens": n_prompt + n_completion,
        },
    }


def _properties(wanted: ResponseFormat | None) -> dict[str, Any]:
    """Return the schemas of the answer's properties; `thinking` and `action` without a schema."""
    if wanted is None or wanted.type != "json_schema":
        return {"thinking": {}, "action": {}}
    schema = (wanted.json_schema.schema_ if wanted.json_schema else None) or {}
    properties, required = schema.get("properties"), schema.get("required", [])
    where = "response_format.json_schema.schema"
    if not isinstance(properties, dict) or not isinstance(properties.get("action"), dict):
        raise Refusal("the rule player needs a schema with a property `action`", param=where)
    names = required if isinstance(required, list) else []
    unknown = [name for name in names if name not in ("thinking", "action")]
    if unknown:
        raise Refusal(f"the rule player supports thinking and action, not {unknown[0]!r}", param=where)
    types = properties["action"].get("type", "string")
    if "string" not in (types if isinstance(types, list) else [types]):
        raise Refusal("the rule player's `action` is a string", param=f"{where}.properties.action")
    return properties


def _answer(request: ChatRequest, player: Player, properties: dict[str, Any]) -> dict[str, str]:
    messages = [Message(message.role, message.text) for message in request.messages]
    prompt = read_prompt(messages)
    chance = _chance(request.seed, player.seed, messages)
    roll = chance.random()
    move = play(prompt.mission, prompt.observation, prompt.history, chance=chance)
    allowed = properties["action"].get("enum")
    choices = [action for action in ACTIONS if not isinstance(allowed, list) or action in allowed]
    if not choices:
        raise Refusal("none of the actions in the schema is one of BabyAI's", param="response_format")
    action = move.action
    if roll < player.invalid and allowed is None:
        action = chance.choice(INVALID_ANSWERS)
    elif player.invalid <= roll < player.invalid + player.mistakes or action not in choices:
        action = chance.choice([choice for choice in choices if choice != action] or choices)
    thinking = (
        {"thinking": move.thinking if prompt.wants_thinking else ""} if "thinking" in properties else {}
    )
    return {**thinking, "action": action}


def _chance(seed: int | None, own_seed: int, messages: list[Message]) -> random.Random:
    text = json.dumps([own_seed, seed, messages])
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()))
