"""Serve the rule player, a stand-in for a language model, as an OpenAI-compatible API on loopback.

It plays BabyAI without model, key or network. Run it as `python -m trajkit.stack.model_server --port 0`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import uuid
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from trajkit._core.process.loop import told_to_end
from trajkit.errors import RequestError, StackError
from trajkit.formats.chat.request import Refusal
from trajkit.stack.chat_completion import MODEL, Player, complete, read_request
from trajkit.stack.loopback import BadBody, LoopbackHandler, LoopbackServer

_LONGEST_BODY = 32 << 20


class ModelServer(LoopbackServer):
    """The stand-in, served in threads of this process until it is closed. Also a context manager.

    Args:
        player: Settings of the player.
        port: Port on loopback; 0 chooses a free one.

    Raises:
        StackError: The port is taken.
    """

    def __init__(self, player: Player, *, port: int = 0) -> None:
        self.player = player
        super().__init__(port, _Handler)
        self.start()


def start(*, port: int = 0, mistakes: float = 0.2, invalid: float = 0.01, seed: int = 0) -> ModelServer:
    """Start the stand-in in this process.

    Args:
        port: Port on loopback; 0 chooses a free one.
        mistakes: Share of answers that are another random action, 0 to 1.
        invalid: Share of answers without an action, 0 to 1.
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


class _Handler(LoopbackHandler):
    server: ModelServer
    server_version = "trajkit-rule-player"
    timeout = 600

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
            body = self.read_body(_LONGEST_BODY)
            path = self.path.partition("?")[0]
            if path != "/v1/chat/completions":
                raise Refusal(f"there is no {path} here", status=404)
            answer = complete(
                read_request(body),
                self.server.player,
                completion_id=f"chatcmpl-{uuid.uuid4().hex}",
                created_at_s=int(time.time()),
            )
        except BadBody as error:
            self._refuse(Refusal(error.why, status=error.status))
        except Refusal as refusal:
            self._refuse(refusal)
        else:
            self._send(HTTPStatus.OK, answer)

    def _refuse(self, refusal: Refusal) -> None:
        self._send(refusal.status, refusal.body)

    def _send(self, status: int, value: dict[str, Any]) -> None:
        self.send(status, "application/json", json.dumps(value).encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer malformed requests with JSON as well."""
        self.close_connection = True
        self.request_version = self.protocol_version  # without a version, HTTP/0.9 would send no headers
        self._refuse(Refusal(message or explain or "bad request", status=code))


def main() -> int:
    """Serve until told to end (SIGTERM or Ctrl-C); write one line with the address to stdout when ready."""
    parser = argparse.ArgumentParser(prog="python -m trajkit.stack.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on loopback; 0 takes a free one")
    parser.add_argument("--mistakes", type=float, default=0.2, help="share of random other actions")
    parser.add_argument("--invalid", type=float, default=0.01, help="share of answers without an action")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mistakes")
    options = parser.parse_args()
    is_ending = threading.Event()
    try:
        with told_to_end(is_ending.set), start(**vars(options)) as server:
            sys.stdout.write(f"rule player (not a language model) at {server.url}\n")
            sys.stdout.flush()
            while not is_ending.wait(1.0):  # in slices: Windows sends no signal to an endless wait
                pass
    except (RequestError, StackError) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
