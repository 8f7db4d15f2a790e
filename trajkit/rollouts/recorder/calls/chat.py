"""Parse calls of the chat completions API to messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from trajkit.formats.chat.message import learn_names, message_of
from trajkit.formats.chat.parts import clean, rest_of, tool_of
from trajkit.formats.tokens.sampled import read_sampled, settings_of
from trajkit.schema import Message, ToolCallBlock
from trajkit.schema.base import JsonObject


class Said(NamedTuple):
    """The content of a call, of either API."""

    prompt: tuple[Message, ...]
    """Every message of the request."""
    completion: Message | None
    """The answer; None when there is none."""
    tools: tuple[JsonObject, ...] | None
    """Tools that the model could call."""
    facts: dict[str, Any]
    """Columns of the step: model, token counts, finish reason."""
    extra: JsonObject
    """Further facts."""
    is_prompt_known: bool = True
    """Whether the request has the whole prompt, or names a response that it continues."""
    previous_id: str | None = None
    """Id of the response that it continues."""
    response_id: str | None = None
    """Id of the answer, by which a later request can continue it."""
    n_instructions: int = 0
    """Leading messages of the prompt that a later request does not inherit."""
    is_failed: bool = False
    """Whether the service reports that it failed."""
    is_in_background: bool = False
    """Whether the answer is to be fetched later."""


class ChatReader:
    """Parses the requests of a conversation; messages that were parsed before are not parsed again."""

    def __init__(self) -> None:
        self._sent: list[Any] = []
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}
        """Tool names by the id of the call."""

    def messages(self, sent: Sequence[Any]) -> tuple[Message, ...]:
        """Return the messages of a request."""
        n = n_same(sent, self._sent)
        if n < len(self._sent):
            self._names = {}
            for one in self._messages[:n]:
                learn_names(self._names, one)
        del self._messages[n:]
        try:
            for one in sent[n:]:
                self._messages.append(message_of(one, self._names))
                learn_names(self._names, self._messages[-1])
        finally:
            self._sent = list(sent[: len(self._messages)])
        return tuple(self._messages)

    def said(self, request: dict[str, Any], answer: dict[str, Any]) -> Said:
        """Parse a call.

        Raises:
            ValueError: The request has no list of messages.
        """
        sent = request.get("messages")
        if not isinstance(sent, list):
            raise ValueError("the request has no list of messages")
        tools = [*(request.get("tools") or ()), *(request.get("functions") or ())]
        choices = answer.get("choices") or []
        first = choices[0] if choices else {}
        message = first.get("message")
        usage = answer.get("usage") or {}
        extra: JsonObject = {
            "request": rest_of(
                request, ("messages", "tools", "functions", "model", "stream", "stream_options")
            ),
            "response": rest_of(
                answer,
                ("choices", "usage", "model", "object", "prompt_token_ids", "tokenizer", "model_version"),
            ),
            "usage": rest_of(usage, ("prompt_tokens", "completion_tokens", "total_tokens")),
            "other_choices": choices[1:],
            "developer_messages": [
                n for n, one in enumerate(sent) if isinstance(one, dict) and one.get("role") == "developer"
            ],
        }
        sampled = read_sampled(request, answer)
        if sampled.completion_token_ids is not None:
            extra |= sampled.extra(settings_of(request))
        facts = {
            "model_name": answer.get("model") or request.get("model"),
            "n_input_tokens": usage.get("prompt_tokens"),
            "n_output_tokens": usage.get("completion_tokens"),
            "finish_reason": first.get("finish_reason"),
            **sampled.columns,
        }
        return Said(
            prompt=self.messages(sent),
            completion=None if message is None else message_of({"role": "assistant", **message}, {}),
            tools=tuple(tool_of(tool) for tool in tools) or None,
            facts=facts,
            extra=extra,
        )


def n_same(sent: Sequence[Any], before: Sequence[Any]) -> int:
    """Count the leading messages that equal those of the previous request."""
    n = min(len(sent), len(before))
    if sent[:n] == before[:n]:
        return n
    return next(i for i in range(n) if sent[i] != before[i])


def action_of(completion: Message | None, request: dict[str, Any]) -> Any:
    """Return the action in an answer: the field `action` of requested JSON, or else the tool calls."""
    if completion is None:
        return None
    if _asks_for_json(request):
        value = _json_or_none(completion.text)
        if isinstance(value, dict) and value.get("action") is not None:
            return value["action"]
    calls = [block for block in completion.content if isinstance(block, ToolCallBlock)]
    return [
        {
            "name": call.name,
            "arguments": call.arguments if (value := _json_or_none(call.arguments)) is None else value,
        }
        for call in calls
    ] or None


def _asks_for_json(request: dict[str, Any]) -> bool:
    text = request.get("text")
    shapes = (request.get("response_format"), text.get("format") if isinstance(text, dict) else None)
    return any(
        isinstance(shape, dict) and shape.get("type") in ("json_object", "json_schema") for shape in shapes
    )


def _json_or_none(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if clean(value) == value else None  # NaN, or half of a surrogate pair, is lost by `clean`
