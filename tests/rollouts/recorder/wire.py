"""A server that speaks chat completions and the responses API as it is told to, and bodies to tell it."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What the server answers one request with."""

    body: Any = None
    """JSON; text is sent as it is."""
    events: list[Any] | None = None
    """Events of a stream instead of a body; text is sent as it is."""
    status: int = 200
    delay_s: float = 0.0
    """Before the answer, or between the events of a stream."""
    gzipped: bool = False
    cut: bool = False
    """End the connection in the middle of the stream."""


class Server:
    """Answers by a script: what is next in it, or what a function makes of the request."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.script: list[Answer] = []
        self.reply: Callable[[dict[str, Any]], Answer] | None = None
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_GET(self) -> None:
                self._send(b'{"object": "list", "data": []}', "application/json")

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.requests.append(request)
                    server.headers.append({k.lower(): v for k, v in self.headers.items()})
                    answer = server.script.pop(0) if server.script else None
                if answer is None:
                    assert server.reply is not None, "nothing to answer"
                    answer = server.reply(request)
                if answer.events is None:
                    time.sleep(answer.delay_s)
                    text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
                    self._send(text.encode(), "application/json", answer)
                else:
                    self._stream(answer)

            def _send(self, body: bytes, kind: str, answer: Answer | None = None) -> None:
                answer = answer or Answer()
                if answer.gzipped:
                    body = gzip.compress(body)
                self.send_response(answer.status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if answer.gzipped:
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, answer: Answer) -> None:
                self.send_response(answer.status)
                self.send_header("Content-Type", "text/event-stream; charset=utf-8")
                self.send_header("Transfer-Encoding", "chunked")
                if answer.gzipped:
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                pieces = [sse(event).encode() for event in answer.events or ()]
                if answer.gzipped:
                    pieces = [gzip.compress(b"".join(pieces))]
                try:
                    for piece in pieces:
                        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                        self.wfile.flush()
                        time.sleep(answer.delay_s)
                    if not answer.cut:
                        self.wfile.write(b"0\r\n\r\n")
                except ConnectionError:
                    pass  # the caller stopped reading
                self.close_connection = answer.cut

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers that go in the middle are part of the tests."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def sse(event: Any) -> str:
    """An event as it is on the wire; responses name theirs."""
    if isinstance(event, str):
        return event
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event)}\n\n"


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
