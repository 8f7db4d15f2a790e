"""A server that speaks chat completions and the responses API as it is told to, and bodies to tell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.rollouts import loopback
from tests.rollouts.loopback import Reply as Answer


class Server(loopback.Server):
    """Answers by a script: what is next in it, or what a function makes of the request."""

    def __init__(self) -> None:
        self.clear()
        super().__init__(lambda request, n: self.script.pop(0) if self.script else self.reply(request))

    def clear(self) -> None:
        """Forget what was asked; the answer is "yes" until a test says otherwise."""
        self.asked = []
        self.script: list[Answer] = []
        self.reply: Callable[[dict[str, Any]], Answer] = lambda request: Answer(completion("yes"))

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the requests so far."""
        return [one.body for one in self.asked]


def completion(
    content: str | None = "hello", *, calls: list[tuple[str, str, str]] | None = None, **more: Any
) -> dict[str, Any]:
    """The body of a chat completion; `calls` are (id, name, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    message |= more.pop("message", {})
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    reason = more.pop("finish_reason", "tool_calls" if calls else "stop")
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "small-1",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 5,
            "total_tokens": 16,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
        **more,
    }


def chunk(delta: dict[str, Any] | None, *, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    """The body of one chunk of a chat completion; without a delta it has no choice."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {
        "id": "chatcmpl-2",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "small-1",
        "choices": choices,
        **more,
    }


USAGE_CHUNK = chunk(None, usage={"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12})


def text_message(text: str, item_id: str = "msg_1") -> dict[str, Any]:
    """A message among the output items of a response."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {
        "id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": content
    }  # fmt: skip


def reasoning(text: str) -> dict[str, Any]:
    """A reasoning item among the output items of a response."""
    return {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": "opaque",
    }


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call among the output items of a response."""
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def response(*output: dict[str, Any], response_id: str = "resp_1", **more: Any) -> dict[str, Any]:
    """The body of a response."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "small-1",
        "output": list(output),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 13,
            "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "output_tokens": 6,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 19,
        },
        **more,
    }


def response_events(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that a response is streamed as; texts come in two pieces."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    found: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(whole["output"]):
        where = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            part = {**where, "content_index": 0}
            found += [
                {"type": "response.output_item.added", **where, "item": {**item, "content": []}},
                {"type": "response.content_part.added", **part, "part": {**item["content"][0], "text": ""}},
                {"type": "response.output_text.delta", **part, "delta": text[:3], "logprobs": []},
                {"type": "response.output_text.delta", **part, "delta": text[3:], "logprobs": []},
                {"type": "response.output_text.done", **part, "text": text, "logprobs": []},
            ]
        elif item["type"] == "function_call":
            text = item["arguments"]
            found += [
                {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": {**item, "arguments": ""},
                },
                {"type": "response.function_call_arguments.delta", **where, "delta": text[:3]},
                {"type": "response.function_call_arguments.delta", **where, "delta": text[3:]},
                {
                    "type": "response.function_call_arguments.done",
                    **where,
                    "arguments": text,
                    "name": item["name"],
                },
            ]
        found.append({"type": "response.output_item.done", "output_index": index, "item": item})
    found.append({"type": f"response.{whole['status']}", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(found)]
