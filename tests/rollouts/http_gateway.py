"""A small HTTP server that speaks the calls of TensorZero's client: a gateway that somebody else runs.

The real gateway of 2026.6.0 for Python has no HTTP API of TensorZero's. This one answers `/inference` and
`/feedback` as the reference says, always with the same action, and writes the rows into a real ClickHouse. On
request it loses rows in silence, as asynchronous writes do, or dies and comes back. Not part of the product.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trajkit._core.ids import uuid7

Ask = Callable[[str], Any]


class HttpGateway:
    """A gateway at an address of its own.

    Args:
        ask: Runs SQL on the database; None keeps no rows.
        loses: Whether a row is lost, by its kind (`inference` or `feedback`) and its number from 1.
        answer_s: Seconds that an answer takes.
    """

    def __init__(
        self,
        ask: Ask | None,
        *,
        loses: Callable[[str, int], bool] = lambda kind, number: False,
        answer_s: float = 0.0,
    ) -> None:
        self.ask, self.loses, self.answer_s = ask, loses, answer_s
        self.n = {"inference": 0, "feedback": 0}
        self.lost: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, on the port of before."""
        self._http = _Http(self, self._port)
        self._port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def die(self) -> None:
        """Stop listening, and break every connection in the middle of what it does."""
        self._http.is_dead = True
        self._http.shutdown()
        self._http.server_close()
        for connection in list(self._http.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._thread.join()

    def inference(self, asked: dict[str, Any]) -> dict[str, Any]:
        time.sleep(self.answer_s)
        inference_id = uuid7()
        raw = json.dumps({"thinking": "", "action": "turn left"})
        self._keep(
            "inference",
            asked["episode_id"],
            "JsonInference (id, function_name, variant_name, episode_id, input, output, output_schema,"
            " inference_params, processing_time_ms, tags)",
            [
                inference_id, asked["function_name"], asked["variant_name"], asked["episode_id"],
                json.dumps(asked["input"]), json.dumps({"raw": raw, "parsed": json.loads(raw)}), "{}", "{}",
                1, asked["tags"],
            ],
        )  # fmt: skip
        return {
            "inference_id": inference_id,
            "episode_id": asked["episode_id"],
            "variant_name": asked["variant_name"],
            "output": {"raw": raw, "parsed": json.loads(raw)},
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "finish_reason": "stop",
        }

    def feedback(self, asked: dict[str, Any]) -> dict[str, Any]:
        feedback_id = uuid7()
        values = [feedback_id, asked["episode_id"]]
        if asked["metric_name"] == "comment":
            table = "CommentFeedback (id, target_id, target_type, value, tags)"
            values += ["episode", asked["value"], asked["tags"]]
        else:
            table = "FloatMetricFeedback (id, target_id, metric_name, value, tags)"
            values += [asked["metric_name"], asked["value"], asked["tags"]]
        self._keep("feedback", asked["episode_id"], table, values)
        return {"feedback_id": feedback_id}

    def _keep(self, kind: str, episode_id: str, table: str, values: list[Any]) -> None:
        with self.lock:
            self.n[kind] += 1
            is_lost = self.loses(kind, self.n[kind])
            if is_lost:
                self.lost.append((kind, episode_id))
        if self.ask is not None and not is_lost:
            self.ask(f"INSERT INTO tensorzero.{table} VALUES ({', '.join(map(_sql, values))})")


def _sql(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [part for item in value.items() for part in item]
        return f"map({', '.join(map(_sql, pairs))})"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return repr(value)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True
    is_dead = False

    def __init__(self, gateway: HttpGateway, port: int) -> None:
        self.gateway = gateway
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._send({"status": "ok", "version": "2026.6.0", "gateway": "ok", "clickhouse": "ok"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(getattr(self.server.gateway, self.path.rpartition("/")[2])(asked))

    def _send(self, value: dict[str, Any]) -> None:
        if self.server.is_dead:
            self.close_connection = True
            return
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
