"""A model server that misbehaves on purpose, for tests of what must survive it. Not part of the product.

Import it by path and call `start`, or run it: `python tests/stack/faulty_server.py --mode 500 --every 2`.
Requests that are not chosen to fail are answered by the real rule player, without mistakes.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trajkit.formats.chat.request import Refusal
from trajkit.stack.chat_completion import Player, complete, read_request

MODES = ("garbage", "not-json", "empty", "invalid", "500", "429", "hang", "close")
"""How it fails.

- garbage: the body is no JSON
- not-json, empty, invalid: a completion whose text is no JSON, is empty, or names no action
- 500 and 429: that status; 429 with `Retry-After: 0`
- hang: nothing ever comes
- close: the connection ends without an answer
"""


class Server:
    """A running faulty server."""

    def __init__(self, mode: str, every: int, port: int) -> None:
        if mode not in MODES:
            raise ValueError(f"no mode {mode!r}: {', '.join(MODES)}")
        self._http = _Http(mode, every, port)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address without `/v1`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def n_requests(self) -> int:
        """Completions asked for so far."""
        return self._http.n_requests

    @property
    def n_faults(self) -> int:
        """How many of them were answered badly, or not at all."""
        return self._http.n_faults

    def close(self) -> None:
        """End it, and every request that hangs."""
        self._http.is_closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, mode: str, every: int, port: int) -> None:
        self.mode, self.every = mode, every
        self.n_requests = self.n_faults = 0
        self.lock = threading.Lock()
        self.is_closing = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)

    def is_next_faulty(self) -> bool:
        """Count a request; whether it is one of those that fail: the 1st, the 1 + every-th and so on."""
        with self.lock:
            is_faulty = self.n_requests % self.every == 0
            self.n_requests += 1
            self.n_faults += is_faulty
            return is_faulty


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._send(200, {"status": "ok"})

    def do_POST(self) -> None:
        body = self._read_body()
        if self.server.is_next_faulty():
            self._fail(body)
        else:
            self._answer(body, None)

    def _fail(self, body: bytes) -> None:
        mode = self.server.mode
        if mode == "garbage":
            self._send_bytes(200, b"<html>}{ \xff not what you asked for")
        elif mode == "500":
            self._send(500, {"error": {"message": "broken on purpose", "type": "server_error"}})
        elif mode == "429":
            self._send(429, {"error": {"message": "slow down", "type": "requests"}}, {"Retry-After": "0"})
        elif mode == "hang":
            self.server.is_closing.wait()
            self.close_connection = True
        elif mode == "close":
            self.close_connection = True
        else:
            texts = {
                "not-json": "Sure! I would turn left here.",
                "empty": "",
                "invalid": '{"thinking": "", "action": "fly"}',
            }
            self._answer(body, texts[mode])

    def _answer(self, body: bytes, text: str | None) -> None:
        player = Player(mistakes=0.0, invalid=0.0)
        try:
            request = read_request(body)
            answer = complete(
                request, player, completion_id=f"chatcmpl-{uuid.uuid4().hex}", created_at_s=int(time.time())
            )
        except Refusal as refusal:
            self._send(refusal.status, refusal.body)
            return
        if text is not None:
            answer["choices"][0]["message"]["content"] = text
        self._send(200, answer)

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while n_bytes := int(self.rfile.readline(), 16):
            body += self.rfile.read(n_bytes)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(value).encode(), headers)

    def _send_bytes(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def start(mode: str, every: int = 1, *, port: int = 0) -> Server:
    """Start a server that fails the first of each `every` requests in the given way."""
    return Server(mode, every, port)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    server = start(options.mode, options.every, port=options.port)
    sys.stdout.write(f"faulty model server at {server.url}\n")
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.close()


if __name__ == "__main__":
    main()
