"""A service on loopback that answers as its stand-in tells it to, and remembers every request."""

from __future__ import annotations

import email.parser
import email.policy
import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit


class Request(NamedTuple):
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    @property
    def form(self) -> dict[str, bytes]:
        """The fields of a multipart form; a file by its bytes."""
        head = f"Content-Type: {self.headers['content-type']}\r\n\r\n".encode()
        parts = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + self.body)
        assert parts.is_multipart(), self.headers
        return {
            str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True)  # type: ignore[misc]
            for part in parts.iter_parts()  # type: ignore[attr-defined]
        }

    @property
    def key(self) -> str | None:
        return self.headers.get("authorization", "").removeprefix("Bearer ") or None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Reply(NamedTuple):
    """What the service sends."""

    body: Any = None
    """JSON; bytes are sent as they are; None is an empty object."""
    status: int = 200
    headers: dict[str, str] = {}


class Hangup(Exception):
    """Raised by a stand-in that closes the connection without a word."""


class Loopback:
    """A running service.

    Args:
        answer: The stand-in.
        prefix: Beginning of every path, which is a part of `url` and not of what is heard.
    """

    def __init__(self, answer: Callable[[Request], Reply], prefix: str = "") -> None:
        self.requests: list[Request] = []
        self.errors: list[BaseException] = []
        """What the stand-in raised; the first is raised again at the end."""
        self.mangle: Callable[[str, Any], Any] = lambda call, answer: answer
        """Makes of an answer (to `METHOD /path`) what is sent."""
        self.prefix, self._http = prefix, _Http(self, answer)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}{prefix}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        if self.errors and error is None:
            raise self.errors[0]

    def count(self, method: str, path: str) -> int:
        """How often this was asked."""
        return sum(1 for one in self.requests if (one.method, one.path) == (method, path))


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, owner: Loopback, answer: Callable[[Request], Reply]) -> None:
        self.owner, self.answer, self.lock = owner, answer, threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):  # else a client that went away
            self.owner.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else 40 ms between head and body

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        request = Request(
            self.command,
            unquote(parts.path).removeprefix(self.server.owner.prefix),
            dict(parse_qsl(parts.query)),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(int(self.headers.get("content-length") or 0)),
        )
        with self.server.lock:
            self.server.owner.requests.append(request)
            try:
                reply = self.server.answer(request)
            except Hangup:
                self.close_connection = True
                return
        if reply.status < 300 and not isinstance(reply.body, bytes):
            reply = reply._replace(body=self.server.owner.mangle(str(request), reply.body))
        sent = {} if reply.body is None else reply.body
        body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass
