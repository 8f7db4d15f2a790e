"""Parse calls of the responses API to messages; see `trajkit.formats.chat.response_items`."""

from __future__ import annotations

from typing import Any

from trajkit.formats.chat.parts import rest_of, tool_of
from trajkit.formats.chat.response_items import Item, item_of, messages_of_items
from trajkit.rollouts.recorder.calls.chat import Said, n_same
from trajkit.schema import Message, Role, ToolCallBlock
from trajkit.schema.base import JsonObject
from trajkit.schema.content import message

_NOT_SETTINGS = (
    "input",
    "instructions",
    "tools",
    "model",
    "stream",
    "stream_options",
    "previous_response_id",
)
_SAID_OF_RESPONSE = (
    "id",
    "created_at",
    "status",
    "service_tier",
    "conversation",
    "error",
    "incomplete_details",
)


class ResponsesReader:
    """Parses the requests of a conversation; items that were parsed before are not parsed again.

    Args:
        names: Tool names by the id of the call, of all conversations of the episode: one may continue a
            response that another reader parsed.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._sent: list[Any] = []
        self._items: list[Item] = []
        self._names = names

    def messages(self, sent: Any) -> tuple[Message, ...]:
        """Return the messages of a request's input."""
        if isinstance(sent, str):
            return (message(Role.USER, sent),)
        n = n_same(sent, self._sent)
        del self._items[n:]
        try:
            for one in sent[n:]:
                self._items.append(self._read(one))
        finally:
            self._sent = list(sent[: len(self._items)])
        return tuple(messages_of_items(self._items))

    def _read(self, item: Any) -> Item:
        read = item_of(item, self._names)
        self._names.update(
            {block.id: block.name for block in read.blocks if isinstance(block, ToolCallBlock)}
        )
        return read

    def completion(self, answer: dict[str, Any]) -> Message | None:
        """Return the answer; None when there is none. Its tool calls are remembered for later items."""
        output = answer.get("output") or ()
        if not output and answer.get("status") not in ("completed", "incomplete"):
            return None
        blocks = [block for item in output for block in self._read(item).blocks]
        return Message(role=Role.ASSISTANT, content=tuple(blocks))

    def said(self, request: dict[str, Any], answer: dict[str, Any]) -> Said:
        """Parse a call; its prompt lacks what the service adds from a previous response.

        Raises:
            ValueError: The input of the request is neither a text nor a list.
        """
        sent = [] if request.get("input") is None else request["input"]
        if not isinstance(sent, str | list):
            raise ValueError("the request's input is neither a text nor a list")
        usage = answer.get("usage") or {}
        extra: JsonObject = {
            "request": rest_of(request, _NOT_SETTINGS),
            "response": {name: answer[name] for name in _SAID_OF_RESPONSE if answer.get(name) is not None},
            "usage": rest_of(usage, ("input_tokens", "output_tokens", "total_tokens")),
            "previous_response_id": request.get("previous_response_id"),
        }
        status = answer.get("status")
        instructions = request.get("instructions")
        first = (message(Role.SYSTEM, instructions),) if isinstance(instructions, str) else ()
        prompt = first + self.messages(sent)
        completion = self.completion(answer)
        facts = {
            "model_name": answer.get("model") or request.get("model"),
            "n_input_tokens": usage.get("input_tokens"),
            "n_output_tokens": usage.get("output_tokens"),
            "finish_reason": _finish_reason(answer, completion),
        }
        tools = tuple(tool_of(tool) for tool in request.get("tools") or ()) or None
        return Said(
            prompt,
            completion,
            tools,
            facts,
            extra,
            # only the service knows the content of these
            is_prompt_known=request.get("conversation") is None and request.get("prompt") is None,
            previous_id=request.get("previous_response_id"),
            response_id=answer.get("id"),
            n_instructions=len(first),
            is_failed=status in ("failed", "cancelled"),
            is_in_background=bool(answer.get("background")) and status in ("queued", "in_progress"),
        )


def _finish_reason(answer: dict[str, Any], completion: Message | None) -> str | None:
    """Return the finish reason in the terms of chat completions, so that one condition finds both."""
    match answer.get("status"):
        case "completed":
            calls = completion is not None and any(
                isinstance(block, ToolCallBlock) for block in completion.content
            )
            return "tool_calls" if calls else "stop"
        case "incomplete":
            reason = (answer.get("incomplete_details") or {}).get("reason")
            return "length" if reason == "max_output_tokens" else reason
        case _:
            return None
