"""Serve the rule player, a stand-in for a language model, as an OpenAI-compatible API on loopback.

It plays BabyAI without model, key or network. Run it as `python -m trajkit.stack.model_server --port 0`.
"""

from __future__ import annotations

import argparse
import http.server
import json
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, NoReturn

from pydantic import ValidationError

from trajkit._core.loop import told_to_end
from trajkit.errors import RequestError, StackError
from trajkit.stack.chat_completion import MODEL, Player, Refusal, complete, read_request
from trajkit.stack.loopback import HOST, LoopbackServer

_LONGEST_BODY = 32 << 20
_IDLE_S = 600
_GRACE_S = 2.0

_log = logging.getLogger(__name__)


class ModelServer:
    """The stand-in, served in threads of this process until it is closed. Also a context manager.

    Args:
        player: Settings of the player.
        port: Port on loopback; 0 chooses a free one.

    Raises:
        StackError: The port is taken.
    """

    def __init__(self, player: Player, *, port: int = 0) -> None:
        try:
            self._server = _Server(player, port)
        except (OSError, OverflowError) as error:
            raise StackError(f"the model server cannot listen on {HOST}:{port}: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address without `/v1`."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def close(self) -> None:
        """Refuse new requests, finish the current ones, and end. A second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server.end_connections(_GRACE_S)

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(*, port: int = 0, mistakes: float = 0.2, invalid: float = 0.01, seed: int = 0) -> ModelServer:
    """Start the stand-in in this process.

    Args:
        port: Port on loopback; 0 chooses a free one.
        mistakes: Share of answers that are another random action, 0 to 1.
        invalid: Share of answers that are no action, 0 to 1.
        seed: Seed of the mistakes.

    Raises:
        RequestError: A share is not between 0 and 1, or both together are more than 1.
        StackError: The port is taken.
    """
    try:
        player = Player(mistakes=mistakes, invalid=invalid, seed=seed)
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(f"{first['loc'][0]} is {first['input']!r}: {first['msg']}") from error
    if mistakes + invalid > 1:
        raise RequestError(f"mistakes {mistakes} and invalid {invalid} are more than 1 together")
    return ModelServer(player, port=port)


def serve(
    port: int = 0,
    *,
    mistakes: float = 0.2,
    invalid: float = 0.01,
    seed: int = 0,
    on_ready: Callable[[str], object],
) -> None:
    """Serve until the process is told to end (SIGTERM or Ctrl-C). Call it from the main thread.

    Args:
        port: Port on loopback; 0 chooses a free one.
        mistakes: Share of answers that are another random action, 0 to 1.
        invalid: Share of answers that are no action, 0 to 1.
        seed: Seed of the mistakes.
        on_ready: Called with the address once the server accepts requests.
    """
    is_ending = threading.Event()
    with (
        told_to_end(is_ending.set),
        start(port=port, mistakes=mistakes, invalid=invalid, seed=seed) as server,
    ):
        on_ready(server.url)
        while not is_ending.wait(
            1.0
        ):  # in slices: Windows delivers no signal to a thread that waits for ever
            pass


class _Server(LoopbackServer):
    def __init__(self, player: Player, port: int) -> None:
        self.player = player
        super().__init__(port, _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "trajkit-rule-player"
    timeout = _IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1  # send head and body together

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/health":
            self._send(HTTPStatus.OK, {"status": "ok", "model": MODEL})
        elif path == "/v1/models":
            model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "trajkit"}
            self._send(HTTPStatus.OK, {"object": "list", "data": [model]})
        else:
            self._refuse(Refusal(f"there is no {path} here", status=404))

    def do_POST(self) -> None:
        try:
            body = self._read_body()
            path = self.path.partition("?")[0]
            if path != "/v1/chat/completions":
                raise Refusal(f"there is no {path} here", status=404)
            answer = complete(
                read_request(body),
                self.server.player,
                completion_id=f"chatcmpl-{uuid.uuid4().hex}",
                created_at_s=int(time.time()),
            )
        except Refusal as refusal:
            self._refuse(refusal)
        else:
            self._send(HTTPStatus.OK, answer)

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        n_bytes = self._number(self.headers.get("Content-Length", "0"), base=10)
        body = self.rfile.read(n_bytes)
        if len(body) < n_bytes:
            self._give_up("the body is shorter than it says")
        return body

    def _read_chunks(self) -> bytes:
        body = b""
        while n_bytes := self._number(
            self.rfile.readline(1024).partition(b";")[0].decode("latin-1"), base=16
        ):
            if len(body) + n_bytes > _LONGEST_BODY:
                self._give_up("the body is too long", status=413)
            body += self.rfile.read(n_bytes)
            self.rfile.readline(3)
        while self.rfile.readline(65536) not in (b"\r\n", b"\n", b""):
            pass  # trailers are not used
        return body

    def _number(self, text: str, *, base: int) -> int:
        try:
            number = int(text, base)
        except ValueError:
            number = -1
        if number < 0:
            self._give_up(f"{text.strip()[:40]!r} is not a length")
        if number > _LONGEST_BODY:
            self._give_up("the body is too long", status=413)
        return number

    def _give_up(self, message: str, *, status: int = 400) -> NoReturn:
        self.close_connection = True  # the next request's start on this connection is unknown
        raise Refusal(message, status=status)

    def _refuse(self, refusal: Refusal) -> None:
        self._send(HTTPStatus(refusal.status), refusal.body)

    def _send(self, status: HTTPStatus, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer malformed requests with JSON, too."""
        self.close_connection = True
        self.request_version = (
            self.protocol_version
        )  # a line without one counts as HTTP/0.9: no headers at all
        self._refuse(Refusal(message or explain or "bad request", status=code))

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to end; write one line with the address to stdout when ready."""
    parser = argparse.ArgumentParser(prog="python -m trajkit.stack.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on loopback; 0 takes a free one")
    parser.add_argument("--mistakes", type=float, default=0.2, help="share of random other actions")
    parser.add_argument("--invalid", type=float, default=0.01, help="share of answers that are no action")
    parser.add_argument("--seed", type=int, default=0, help="another one makes other mistakes")
    options = parser.parse_args(arguments)

    def announce(url: str) -> None:
        sys.stdout.write(f"rule player (not a language model) at {url}\n")
        sys.stdout.flush()

    try:
        serve(
            options.port,
            mistakes=options.mistakes,
            invalid=options.invalid,
            seed=options.seed,
            on_ready=announce,
        )
    except (RequestError, StackError) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
