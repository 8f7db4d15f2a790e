"""A real ClickHouse, a real embedded gateway, and a model that only notes what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from trajkit.stack.clickhouse import ClickHouse, User

READER = User("reader", "only looks", is_readonly=True)
RECIPE = Path(__file__).parents[2] / "recipes" / "babyai" / "tensorzero.toml"


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with warm.with_tables().start(tmp_path_factory.mktemp("stack") / "db", users=[READER]) as running:
        yield running


@pytest.fixture(scope="session")
def recipe() -> Path:
    return RECIPE


@pytest.fixture
def reader() -> User:
    return READER


class Model:
    """An OpenAI-compatible server that always answers the same action and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else 40 ms between head and body

            def do_POST(self) -> None:
                model.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                content = json.dumps({"thinking": "none", "action": "turn left"})
                choice = {
                    "index": 0,
                    "message": {"role": "assistant", "content": content},
                    "finish_reason": "stop",
                }
                usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
                body = json.dumps(
                    {
                        "id": "one",
                        "object": "chat.completion",
                        "created": 1,
                        "model": "stub",
                        "choices": [choice],
                        "usage": usage,
                    }
                ).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    running = Model()
    yield running
    running.close()
