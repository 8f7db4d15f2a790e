"""A real ClickHouse, a real embedded gateway, and a model that only notes what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from trajkit.stack.clickhouse import ClickHouse, User
from trajkit.stack.loopback import LoopbackHandler, LoopbackServer


def check_config(config_file: Path) -> None:
    """Let the gateway read a configuration, without a database."""
    import tensorzero

    with pytest.raises(tensorzero.BaseTensorZeroError) as caught:
        tensorzero.TensorZeroGateway.build_embedded(config_file=str(config_file))
    # the missing database is an error only after the whole configuration was read
    assert "EmbeddedGatewaySetup" in str(caught.value)


READER = User("reader", "only looks", is_readonly=True)
RECIPE = Path(__file__).parents[2] / "recipes" / "babyai" / "tensorzero.toml"


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    with warm.with_tables().start(tmp_path_factory.mktemp("stack") / "db", users=[READER]) as running:
        yield running


class Model(LoopbackServer):
    """An OpenAI-compatible server that always answers the same action and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        super().__init__(0, _Answering)
        self.start()


class _Answering(LoopbackHandler):
    server: Model

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.read_body(1 << 24)))
        content = json.dumps({"thinking": "none", "action": "turn left"})
        message = {"role": "assistant", "content": content}
        answer = {
            "id": "one",
            "object": "chat.completion",
            "created": 1,
            "model": "stub",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
        self.send(200, "application/json", json.dumps(answer).encode())


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    with Model() as running:
        yield running
