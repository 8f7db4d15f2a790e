"""The faulty server fails as it says: what relies on it is only as good as that."""

from __future__ import annotations

import http.client
import importlib.util
import json
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BODY = json.dumps(
    {
        "model": "m",
        "messages": [{"role": "user", "content": "Task: go to the red ball.\na red ball 1 step right"}],
    }
)


@pytest.fixture(scope="module")
def faulty() -> ModuleType:
    path = Path(__file__).with_name("faulty_server.py")
    spec = importlib.util.spec_from_file_location("faulty_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(server: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=0.5)
    try:
        connection.request("POST", "/v1/chat/completions", BODY)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


@pytest.mark.parametrize(("mode", "status"), [("garbage", 200), ("500", 500), ("429", 429)])
def test_it_answers_badly_now_and_then(faulty: ModuleType, mode: str, status: int) -> None:
    server = faulty.start(mode, every=2)
    answers = [ask(server) for _ in range(4)]
    server.close()

    assert [answer[0] for answer in answers] == [status, 200, status, 200]
    assert json.loads(answers[1][1])["object"] == "chat.completion"
    assert (server.n_requests, server.n_faults) == (4, 2)


@pytest.mark.parametrize(
    ("mode", "content"),
    [
        ("not-json", "Sure! I would turn left here."),
        ("empty", ""),
        ("invalid", '{"thinking": "", "action": "fly"}'),
    ],
)
def test_it_completes_with_text_that_is_no_action(faulty: ModuleType, mode: str, content: str) -> None:
    server = faulty.start(mode)
    status, body = ask(server)
    server.close()

    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, content)


def test_it_hangs_or_closes_the_connection(faulty: ModuleType) -> None:
    silent, gone = faulty.start("hang"), faulty.start("close")

    with pytest.raises(socket.timeout):
        ask(silent)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(gone)
    silent.close()
    gone.close()
