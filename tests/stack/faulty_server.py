"""A model server that misbehaves on purpose, for tests of what must survive it. Not part of the product.

Requests that are not chosen to fail are answered by the real rule player, without mistakes.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import Any

from trajkit.formats.chat.request import Refusal
from trajkit.stack.chat_completion import Player, complete, read_request
from trajkit.stack.loopback import LoopbackHandler, LoopbackServer

_TEXTS = {
    "not-json": "Sure! I would turn left here.",
    "empty": "",
    "invalid": '{"thinking": "", "action": "fly"}',
}


class Server(LoopbackServer):
    """A running faulty server. Its `url` is without `/v1`."""

    def __init__(self, mode: str, every: int) -> None:
        self.mode, self.every = mode, every
        self.n_requests = 0
        """Completions asked for so far."""
        self.lock = threading.Lock()
        self.is_closing = threading.Event()
        super().__init__(0, _Handler)
        self.start()

    def is_next_faulty(self) -> bool:
        """Count a request; whether it is one of those that fail: the 1st, the 1 + every-th and so on."""
        with self.lock:
            self.n_requests += 1
            return (self.n_requests - 1) % self.every == 0

    def close(self) -> None:
        """End it, and every request that hangs."""
        self.is_closing.set()
        super().close()


class _Handler(LoopbackHandler):
    server: Server

    def do_GET(self) -> None:
        self._send(200, {"status": "ok"})

    def do_POST(self) -> None:
        body, mode = self.read_body(1 << 24), self.server.mode
        if not self.server.is_next_faulty():
            self._answer(body, None)
        elif mode == "garbage":
            self.send(200, "application/json", b"<html>}{ \xff not what you asked for")
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
            self._answer(body, _TEXTS[mode])

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

    def _send(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.send(status, "application/json", json.dumps(value).encode(), headers or {})


def start(mode: str, every: int = 1) -> Server:
    """Start a server that fails the first of each `every` requests in the given way.

    - garbage: the body is no JSON
    - not-json, empty, invalid: a completion whose text is no JSON, is empty, or names no action
    - 500 and 429: that status; 429 with `Retry-After: 0`
    - hang: nothing ever comes
    - close: the connection ends without an answer
    """
    return Server(mode, every)
