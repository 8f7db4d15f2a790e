from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from trajkit.errors import RequestError, StackError
from trajkit.stack.model_server import ModelServer, start

SCHEMA = {
    "type": "object",
    "properties": {"thinking": {"type": "string"}, "action": {"type": "string"}},
    "required": ["thinking", "action"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "act", "strict": True, "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with start(mistakes=0.0, invalid=0.0) as running:
        yield running


@pytest.fixture
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def connection(server: ModelServer) -> Iterator[http.client.HTTPConnection]:
    made = connect(server.url)
    yield made
    made.close()


def connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), timeout=20)


def messages(where: str = "1 step right") -> Any:
    return [
        {"role": "system", "content": "Your mission: go to the red ball."},
        {"role": "user", "content": f"Observation:\na wall 4 steps forward\na red ball {where}"},
    ]


def payload(**changes: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages(), "seed": 1} | changes).encode()


def send(connection: http.client.HTTPConnection, body: Any, **headers: str) -> tuple[int, Any]:
    """Status and JSON of the answer to one completion request."""
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"} | headers)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def talk(url: str, sent: bytes) -> bytes:
    """Send raw bytes, say no more, and read to the end."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=20) as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: raw.recv(65536), b""))


def test_the_official_client_gets_an_action(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="gpt-whatever", messages=messages(), seed=3, response_format=FORMAT, temperature=0.7
    )

    content = json.loads(answer.choices[0].message.content or "")
    assert content["action"] == "turn right"
    assert "red ball" in content["thinking"]
    assert answer.model == "gpt-whatever"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 20


def test_the_official_client_lists_the_model_by_what_it_is(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["rule-player-not-a-language-model"]


def test_the_official_client_is_refused_what_is_not_supported(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="one answer per request") as refused:
        client.chat.completions.create(model="m", messages=messages(), n=2)
    assert refused.value.param == "n"
    with pytest.raises(openai.BadRequestError, match="does not stream"):
        client.chat.completions.create(model="m", messages=messages(), stream=True)
    with pytest.raises(openai.NotFoundError, match="there is no /v1/embeddings here"):
        client.embeddings.create(model="m", input="hello")


def test_health_says_what_it_is(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/health")
    response = connection.getresponse()

    assert (response.status, json.loads(response.read())) == (
        200,
        {"status": "ok", "model": "rule-player-not-a-language-model"},
    )


def test_one_connection_serves_many_requests_and_survives_a_refusal(
    connection: http.client.HTTPConnection,
) -> None:
    connection.connect()
    before = connection.sock
    statuses = [send(connection, body)[0] for body in (payload(), b"{", payload(n=3), payload())]

    assert statuses == [200, 400, 400, 200]
    assert connection.sock is before


def test_a_client_may_wait_for_leave_before_it_sends_the_body(server: ModelServer) -> None:
    body = payload()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=20) as raw:
        raw.sendall(f"{head}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(body)
        assert raw.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_chunked_body_is_read(connection: http.client.HTTPConnection) -> None:
    whole = payload()
    pieces = (whole[index : index + 50] for index in range(0, len(whole), 50))

    status, answer = send(connection, pieces)

    assert status == 200
    assert json.loads(answer["choices"][0]["message"]["content"])["action"] == "turn right"
    assert send(connection, payload())[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 500\r\n\r\n{}", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}", 400),
        (b"BREW /coffee HTTP/1.1\r\n\r\n", 501),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_what_is_not_a_request_is_refused_in_json_and_the_connection_ends(
    server: ModelServer, sent: bytes, status: int
) -> None:
    head, _, body = talk(server.url, sent).partition(b"\r\n\r\n")

    assert f" {status} ".encode() in head.splitlines()[0]
    assert b"Connection: close" in head
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_clients_that_go_away_leave_it_working(
    server: ModelServer, connection: http.client.HTTPConnection
) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as raw:
            raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5")

    assert send(connection, payload())[0] == 200


def test_fifty_at_once_get_the_answers_that_one_alone_gets() -> None:
    with start(mistakes=0.4, invalid=0.1) as noisy:

        def ask_all(_: int) -> list[str]:
            one = connect(noisy.url)
            answers = [send(one, payload(seed=seed))[1] for seed in range(20)]
            one.close()
            return [answer["choices"][0]["message"]["content"] for answer in answers]

        alone = ask_all(0)
        with ThreadPoolExecutor(50) as pool:
            together = list(pool.map(ask_all, range(50)))

    assert together == [alone] * 50
    assert len(set(alone)) > 4


def test_closing_ends_idle_connections_and_frees_the_port() -> None:
    server = start()
    idle = connect(server.url)
    assert send(idle, payload())[0] == 200
    port = int(server.url.rpartition(":")[2])
    started = time.monotonic()
    server.close()
    server.close()

    assert time.monotonic() - started < 15
    with pytest.raises(ConnectionError):
        connect(server.url).request("GET", "/health")
    idle.close()
    with start(port=port) as again:
        assert again.url == server.url


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mistakes": -0.1}, "mistakes is -0.1"),
        ({"mistakes": 1.5}, "mistakes is 1.5"),
        ({"invalid": float("nan")}, "invalid is nan"),
        ({"mistakes": 0.7, "invalid": 0.7}, "more than 1 together"),
    ],
)
def test_shares_that_are_none_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        start(**settings)  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_an_error_that_names_it(server: ModelServer) -> None:
    port = int(server.url.rpartition(":")[2])

    with pytest.raises(StackError, match=f"can listen on .*:{port}"):
        start(port=port)
    with pytest.raises(StackError, match="port must be 0-65535"):
        start(port=70_000)


def run_module(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trajkit.stack.model_server", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without telling it")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_a_process_it_says_where_it_is_and_ends_when_told(number: signal.Signals) -> None:
    with run_module("--port", "0", "--mistakes", "0", "--invalid", "0") as process:
        line = process.stdout.readline()
        url = line.split()[-1]
        one = connect(url)
        status, answer = send(one, payload())
        process.send_signal(number)
        rest, errors = process.communicate(timeout=20)
        one.close()

    assert line.startswith("rule player (not a language model) at http://127.0.0.1:")
    assert (status, json.loads(answer["choices"][0]["message"]["content"])["action"]) == (200, "turn right")
    assert (process.returncode, rest, errors) == (0, "", "")


def test_as_a_process_it_refuses_a_wrong_setting_in_one_line() -> None:
    with run_module("--mistakes", "7") as process:
        out, errors = process.communicate(timeout=20)

    assert (process.returncode, out) == (2, "")
    assert errors.startswith("mistakes is 7.0: ")
    assert errors.count("\n") == 1
