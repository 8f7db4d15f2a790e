"""Base classes of small servers on loopback and of their request handlers."""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from trajkit._core.process.closing import Closing
from trajkit.errors import StackError

HOST = "127.0.0.1"
"""The only address that they listen on."""

_log = logging.getLogger(__name__)
_NONE: Mapping[str, str] = MappingProxyType({})


class LoopbackServer(Closing, socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server with a thread for each connection, in this process until it is closed.

    Args:
        port: Port; 0 chooses a free one.
        handler: Handler of a connection.

    Raises:
        StackError: The port is taken, or may not be used.
    """

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"
    request_queue_size = 512
    grace_s = 2.0
    """Seconds that current requests get at the end."""

    def __init__(self, port: int, handler: type[LoopbackHandler]) -> None:
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        try:
            super().__init__((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise StackError(
                f"nothing can listen on {HOST}:{port}: {error}", hint="--port 0 takes a free one"
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self.server_address[1]}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Refuse new requests, finish the current ones, and end. A second call does nothing."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
            self.server_close()
            self._end_connections()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Record the connection and start its thread."""
        with self._changed:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection and forget it."""
        super().shutdown_request(request)
        with self._changed:
            self._connections.discard(request)
            self._changed.notify_all()

    def _end_connections(self) -> None:
        """Stop reading, so that idle connections end at once and busy ones after their answer."""
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):  # the client may have gone first
                    connection.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._connections, timeout=self.grace_s)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, unless the client only disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("a request could not be answered")


class BadBody(Exception):
    """The body of a request cannot be read.

    Args:
        why: What is wrong with it.
        status: HTTP status of the refusal.
    """

    def __init__(self, why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        self.why, self.status = why, status
        super().__init__(why)


class LoopbackHandler(http.server.BaseHTTPRequestHandler):
    """Base class of handlers: it reads bodies, also in chunks, and sends answers."""

    protocol_version = "HTTP/1.1"
    sys_version = ""
    timeout = 120
    disable_nagle_algorithm = True
    wbufsize = -1  # send head and body together

    def handle_expect_100(self) -> bool:
        """Send `100 Continue` at once: the client waits for it before it sends the body."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def read_body(self, most_bytes: int) -> bytes:
        """Return the body of the request; without a length it is empty.

        Raises:
            BadBody: It is too long, cut off, or not valid HTTP. The connection ends after the answer.
        """
        try:
            if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
                return self._read(self.headers.get("Content-Length", "0"), 10, most_bytes)
            data = bytearray()
            while piece := self._read(
                self.rfile.readline(1024).partition(b";")[0].decode("latin-1"), 16, most_bytes - len(data)
            ):
                data += piece
                self.rfile.readline(3)
            while self.rfile.readline(65536) not in (b"\r\n", b"\n", b""):
                pass  # trailers are not used
            return bytes(data)
        except BadBody:
            self.close_connection = True  # the next request's start on this connection is unknown
            raise

    def _read(self, length: str, base: int, most_bytes: int) -> bytes:
        try:
            n_bytes = int(length, base)
        except ValueError:
            n_bytes = -1
        if n_bytes < 0:
            raise BadBody(f"{length.strip()[:40]!r} is not a length")
        if n_bytes > most_bytes:
            raise BadBody("the body is too long", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        data = self.rfile.read(n_bytes)
        if len(data) < n_bytes:
            raise BadBody("the body is shorter than its stated length")
        return data

    def send(self, status: int, media_type: str, body: bytes, headers: Mapping[str, str] = _NONE) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request."""
        _log.debug(format, *args)
