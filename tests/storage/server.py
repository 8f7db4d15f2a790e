"""A real S3 server (moto) in a process of its own, and a proxy that counts and makes faults."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUCKET = "trajkit-tests"
_FORBIDDEN = (
    b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>The provided token has expired."
    b"</Message></Error>"
)
_SERVER = """
import sys
from werkzeug.serving import make_server
from moto.server import DomainDispatcherApplication, create_backend_app
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class Request:
    """One request that went through the proxy."""

    method: str
    path: str
    is_conditional: bool
    n_sent: int
    """Bytes of the answer's body."""


Fault = Callable[[str, str], str | None]
"""From the method and the path, what goes wrong: `503`, `403`, `slow`, `lost answer`, `cut answer` or
`cut request`; None for nothing."""


@dataclass
class Proxy:
    """What stands between the client and the server."""

    url: str = ""
    fault: Fault = lambda method, path: None
    requests: list[Request] = field(default_factory=list)

    @property
    def n_read(self) -> int:
        """Bytes of all objects that were read."""
        return sum(each.n_sent for each in self.requests if each.method == "GET" and ".parquet" in each.path)


@contextlib.contextmanager
def s3() -> Iterator[Proxy]:
    """Start both; the environment of this process has the credentials and the address of the proxy."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        proxy = Proxy()
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(port, proxy))
        server.daemon_threads = True
        proxy.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            server.server_close()
            process.terminate()


def _handler(port: int, proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else 40 ms between head and body

        def log_message(self, format: str, *given: Any) -> None:
            pass

        def _pass_on(self) -> None:
            wrong = proxy.fault(self.command, self.path)
            length = int(self.headers.get("Content-Length") or 0)
            if wrong == "cut request":
                self.rfile.read(min(length, 1000))
                self.close_connection = True
                return
            body = (
                self._chunked()
                if self.headers.get("Transfer-Encoding") == "chunked"
                else self.rfile.read(length)
            )
            if wrong in ("503", "403"):
                self._answer(
                    int(wrong),
                    {"Content-Type": "application/xml"},
                    b"<Error><Code>SlowDown</Code></Error>" if wrong == "503" else _FORBIDDEN,
                )
                return
            if wrong == "slow":
                time.sleep(0.3)
            connection = http.client.HTTPConnection("127.0.0.1", port)
            headers = {
                n: v for n, v in self.headers.items() if n.lower() not in ("transfer-encoding", "expect")
            }
            headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            found = answer.read()
            kept = {
                n: v
                for n, v in answer.getheaders()
                if n.lower() not in ("transfer-encoding", "connection", "content-length")
            }
            if self.command == "HEAD":
                kept["Content-Length"] = answer.getheader("Content-Length") or "0"
            connection.close()
            is_conditional = self.headers.get("If-None-Match") == "*"
            proxy.requests.append(Request(self.command, self.path, is_conditional, len(found)))
            if wrong == "lost answer":
                self.close_connection = True
                return
            if wrong == "cut answer":
                self._answer(
                    answer.status, kept | {"Content-Length": str(len(found))}, found[: len(found) // 2]
                )
                self.close_connection = True
                return
            self._answer(answer.status, kept, found)

        def _chunked(self) -> bytes:
            whole = b""
            while n := int(self.rfile.readline().split(b";")[0], 16):
                whole += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
            return whole

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    return Handler
