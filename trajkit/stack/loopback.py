"""The base of small servers on loopback that end their connections gracefully."""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import socketserver
import sys
import threading
from typing import Any

HOST = "127.0.0.1"
"""The only address that they listen on."""

_log = logging.getLogger(__name__)


class LoopbackServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server with a thread for each connection.

    Args:
        port: Port; 0 chooses a free one.
        handler: Handler of a connection.

    Raises:
        OSError: The port is taken.
    """

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"
    request_queue_size = 512

    def __init__(self, port: int, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__((HOST, port), handler)

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

    def end_connections(self, grace_s: float) -> None:
        """Stop reading, so that idle connections end at once and busy ones after their answer."""
        with self._changed:
            for connection in self._connections:
                with contextlib.suppress(OSError):  # the client may have gone first
                    connection.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._connections, timeout=grace_s)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, unless the client only disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("a request could not be answered")
