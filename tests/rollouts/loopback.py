"""A model server on loopback that answers as a test tells it to. Import it by path and call `serve`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """What the server sends."""

    body: Any
    """JSON; bytes are sent as they are; None closes the connection without a word."""
    status: int = 200
    headers: dict[str, str] = {}


class Asked(NamedTuple):
    """A request that came."""

    path: str
    headers: dict[str, str]
    """By name in lower case."""
    body: dict[str, Any]


def said(content: str | None, *, usage: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
    """A chat completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "the-model-that-answered",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10} if usage is None else usage,
    }


def refused(message: str, **error: Any) -> dict[str, Any]:
    """An error in OpenAI's words."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, **error}}


class Server:
    """A running one."""

    def __init__(self, answer: Callable[[dict[str, Any], int], Reply]) -> None:
        self.asked: list[Asked] = []
        self._http = _Http(self, answer)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: Server, answer: Callable[[dict[str, Any], int], Reply]) -> None:
        self.owner, self.answer, self.lock = server, answer, threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            n = len(self.server.owner.asked)
            self.server.owner.asked.append(
                Asked(self.path, {name.lower(): text for name, text in self.headers.items()}, body)
            )
        reply = self.server.answer(body, n)
        if reply.body is None:
            self.close_connection = True
            return
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, text in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serve(answer: Callable[[dict[str, Any], int], Reply]) -> Iterator[Server]:
    """Serve for the time of a block.

    Args:
        answer: Given the body of a request and how many came before it.
    """
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()
