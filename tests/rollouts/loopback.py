"""A model server on loopback that answers as a test tells it to."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """What the server sends."""

    body: Any = None
    """JSON; bytes and text are sent as they are; None closes the connection without a word."""
    status: int = 200
    headers: dict[str, str] = {}
    events: list[Any] | None = None
    """Events of a stream instead of a body; text is sent as it is."""
    delay_s: float = 0.0
    """Before the answer, or between the events of a stream."""
    gzipped: bool = False
    cut: bool = False
    """End the connection in the middle of the stream."""


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

    at_get: Any = {"object": "list", "data": []}
    """The answer to every GET."""

    def __init__(self, answer: Callable[[dict[str, Any], int], Reply]) -> None:
        self.asked: list[Asked] = []
        self.answer, self.lock, self._port = answer, threading.Lock(), 0
        self.start()
        self.url = f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Listen, on the port of before."""
        self._http = _Http(self, self._port)
        self._port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def die(self) -> None:
        """Stop listening, and break every connection in the middle of what it does."""
        self._http.is_dead = True
        self.close()
        for connection in list(self._http.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    is_dead = False

    def __init__(self, server: Server, port: int) -> None:
        self.owner = server
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers that go in the middle are part of the tests."""
        if not (self.is_dead or isinstance(sys.exception(), ConnectionError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._send(Reply(self.server.owner.at_get))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        owner = self.server.owner
        with owner.lock:
            n = len(owner.asked)
            headers = {name.lower(): text for name, text in self.headers.items()}
            owner.asked.append(Asked(self.path, headers, body))
        reply = owner.answer(body, n)
        if reply.events is not None:
            self._stream(reply, reply.events)
        elif reply.body is None or self.server.is_dead:
            self.close_connection = True
        else:
            time.sleep(reply.delay_s)
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        text = reply.body if isinstance(reply.body, bytes | str) else json.dumps(reply.body)
        data = text.encode() if isinstance(text, str) else text
        data = gzip.compress(data) if reply.gzipped else data
        self._head(reply, {"Content-Type": "application/json", "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _stream(self, reply: Reply, events: list[Any]) -> None:
        self._head(
            reply, {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"}
        )
        pieces = [_sse(event).encode() for event in events]
        try:
            for piece in [gzip.compress(b"".join(pieces))] if reply.gzipped else pieces:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
                time.sleep(reply.delay_s)
            if not reply.cut:
                self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            pass  # the caller stopped reading
        self.close_connection = reply.cut

    def _head(self, reply: Reply, headers: dict[str, str]) -> None:
        self.send_response(reply.status)
        packed = {"Content-Encoding": "gzip"} if reply.gzipped else {}
        for name, text in {**headers, **packed, **reply.headers}.items():
            self.send_header(name, text)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _sse(event: Any) -> str:
    """An event as it is on the wire; responses name theirs."""
    if isinstance(event, str):
        return event
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event)}\n\n"


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
