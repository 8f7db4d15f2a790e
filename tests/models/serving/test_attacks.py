"""Requests and pages that mean harm: each is refused by itself, and the next request is answered."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.matrix import daily
from tests.models.serving.conftest import Running, serving
from tests.tiny import make_tiny

BASE = "sample:tiny-base"
NORMAL_S = 60
"""An ordinary answer takes a tenth of a second; a machine that runs other things may need longer."""


@pytest.fixture(autouse=True)
def is_answered_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each attack an ordinary request is answered, and the server says that it is well."""
    yield
    if "server" in request.fixturenames:
        running = request.getfixturevalue("server")
        assert post(running, max_tokens=3, timeout=NORMAL_S).status_code == 200
        assert httpx.get(running.url.replace("/v1", "/health"), timeout=NORMAL_S).json()["status"] == "ok"


@contextmanager
def silence(running: Running) -> Iterator[list[socket.socket]]:
    """Connections that say nothing, or half of a request."""
    port = int(running.url.rpartition(":")[2].removesuffix("/v1"))
    with ExitStack() as kept:
        opened = [kept.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(60)]
        for place, each in enumerate(opened):
            each.sendall([b"", b"POST /v1/chat", b"GET /health HTTP/1.1\r\nHost: local"][place % 3])
        yield opened


@pytest.fixture(scope="module", autouse=True)
def silent(server: Running) -> Iterator[None]:
    """They are there while everything else is asked."""
    with silence(server):
        yield


def body(**how: Any) -> dict[str, Any]:
    return {"model": BASE, "messages": [{"role": "user", "content": "Play."}], "max_tokens": 8, **how}


def post(running: Running, *, timeout: float = 60, **how: Any) -> httpx.Response:
    return post_text(running, json.dumps(body(**how)), timeout=timeout)


def post_text(running: Running, text: str | bytes, *, timeout: float = 60, **headers: str) -> httpx.Response:
    headers = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return httpx.post(f"{running.url}/chat/completions", content=text, headers=headers, timeout=timeout)


def schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}}
    return found


def doubled(times: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for place in range(times):
        half = {"$ref": f"#/$defs/d{place}"}
        definitions[f"d{place + 1}"] = {"allOf": [half, half]}
    return {"$ref": f"#/$defs/d{times}", "$defs": definitions}


REFUSED = {
    "half of a surrogate pair": {"const": "\ud800"},
    "half of a surrogate pair as a name": {"properties": {"\udfff": {}}},
    "nested 150 deep": nested(75),
    "nested 900 deep": nested(450),
    "a multiple that is counted for ever": {"type": "integer", "multipleOf": 99999989},
    "multiples whose product is": {"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]},
    "a pattern that cannot be": {"pattern": "^(a|b)*a(a|b){20}$", "minLength": 100},
    "itself": {"$ref": "#"},
    "two that are each other": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
}


@pytest.mark.parametrize("stream", daily([False, True], 1))
@pytest.mark.parametrize("hostile", REFUSED.values(), ids=REFUSED)
def test_a_hostile_schema_is_refused_by_itself(server: Running, hostile: Any, stream: bool) -> None:
    answer = post(server, response_format=schema(hostile), stream=stream)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


BOUNDED = {
    "a pattern of many ways": {"type": "string", "pattern": "^(a|a)*(a|a)*[ab]*a[ab]{200}$"},
    "repeated repeats": {"type": "string", "pattern": "^((((a{1,100}){1,100}){1,100}){1,100}){1,100}$"},
    "15,000 values": {"enum": [f"v{place}" for place in range(15000)]},
    "a billion items": {"type": "array", "items": {"const": 1}, "minItems": 10**9},
    "a billion characters": {"type": "string", "minLength": 10**9},
    "doubled forty times": doubled(40),
    "a huge number": {"type": "integer", "minimum": 10**300},
    "a choice of choices": {"anyOf": [{"anyOf": [{"anyOf": [{}] * 20}] * 20}] * 20},
    "900 objects": {"anyOf": [{"type": "object", "properties": {"a": {"const": n}}} for n in range(900)]},
    "8,000 names": {"type": "object", "properties": {f"p{n}": {} for n in range(8000)}},
}


@pytest.mark.parametrize("hostile", daily(BOUNDED.values(), 3), ids=BOUNDED)
def test_a_large_schema_costs_a_moment(server: Running, hostile: Any) -> None:
    before = time.monotonic()
    answer = post(server, response_format=schema(hostile))
    assert answer.status_code in (200, 400), answer.text
    assert time.monotonic() - before < NORMAL_S


def test_a_reference_to_another_document_is_refused_and_never_fetched(server: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.5)
        url = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/schema.json"
        for reference in (url, "file:///etc/passwd", "other.json"):
            answer = post(server, response_format=schema({"$ref": reference}))
            assert answer.status_code == 400
            message = answer.json()["error"]["message"]
            assert "$ref to another document is not supported" in message
            assert reference.removeprefix("file:///") in message
        with pytest.raises(TimeoutError):
            elsewhere.accept()


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_tools_nested_deep_are_refused_by_themselves(server: Running, depth: int) -> None:
    start, end = '{"type":"object","properties":{"a":', "}}"
    levels = min(depth, 4000)  # as many as a body has room for
    parameters = start * levels + "{}" + end * levels
    tool = f'{{"type":"function","function":{{"name":"f","strict":true,"parameters":{parameters}}}}}'
    text = json.dumps(body())[:-1] + f', "tools": [{tool}], "tool_choice": "required"}}'
    answer = post_text(server, text)
    assert answer.status_code in ((200, 400) if depth == 40 else (400,)), answer.text


@pytest.mark.parametrize(
    "text",
    [
        '{"model":' + "[" * 60_000,
        '{"model": "\\ud800", "messages": [{"role": "user", "content": "x"}]}',
        '{"model": "' + BASE + '", "messages": [{"role": "user", "content": "\\udc00"}]}',
        '{"model": "'
        + BASE
        + '", "messages": [{"role": "user", "content": "x"}], "seed": 1'
        + "0" * 9000
        + "}",
        '{"model": "' + BASE + '", "messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'\xff\xfe{"model": 1}',
        b"",
    ],
)
def test_what_no_parser_should_take_is_refused(server: Running, text: str | bytes) -> None:
    answer = post_text(server, text)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["message"]


def test_many_stops_and_long_ones_are_refused(server: Running) -> None:
    assert post(server, stop=["x"] * 65).status_code == 400
    assert post(server, stop="x" * 5000).status_code == 400


@pytest.mark.parametrize("megabytes", [1, 31])
def test_a_body_that_no_model_reads_is_refused_before_it_is_parsed(server: Running, megabytes: int) -> None:
    text = json.dumps(body(messages=[{"role": "user", "content": "a ball " * (megabytes * 150_000)}]))
    before = time.monotonic()
    answer = post_text(server, text)
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", None)
    assert "the model reads 4,096 tokens" in error["message"]
    assert time.monotonic() - before < NORMAL_S


@pytest.mark.full
def test_others_are_answered_while_long_prompts_are_read(server: Running) -> None:
    long = body(messages=[{"role": "user", "content": "a ball " * 10_000}], n=16)
    ended = threading.Event()

    def press() -> None:
        while not ended.is_set():
            httpx.post(f"{server.url}/chat/completions", json=long, timeout=120)

    threads = [threading.Thread(target=press) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            assert post(server, max_tokens=3, timeout=NORMAL_S).status_code == 200
            assert httpx.get(server.url.replace("/v1", "/health"), timeout=NORMAL_S).status_code == 200
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:80"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "[::bad"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "multipart/form-data"}, 415),
        ({"content_type": ""}, 415),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"content_type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_no_web_page_is_answered(server: Running, headers: dict[str, str], status: int) -> None:
    answer = post_text(server, json.dumps(body()), **headers)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert not any(name.startswith("access-control") for name in answer.headers)
    if status == 403:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        assert httpx.get(f"{server.url}/models", headers=sent, timeout=60).status_code == 403


def test_a_page_may_not_ask_first(server: Running) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = httpx.options(f"{server.url}/chat/completions", headers=asked, timeout=60)
    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_clients_that_go_stop_their_own_answers(server: Running) -> None:
    ones = schema({"type": "array", "items": {"const": 1}, "minItems": 1500})
    for stream in (False, True, False, True):
        port = int(server.url.rpartition(":")[2].removesuffix("/v1"))
        text = json.dumps(body(response_format=ones, max_tokens=4000, stream=stream)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n"
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + text)
            time.sleep(0.3)
    before = time.monotonic()
    assert post(server, max_tokens=3).status_code == 200
    assert time.monotonic() - before < NORMAL_S


@pytest.mark.full
def test_a_chat_template_without_end_fails_its_request_in_time(tmp_path: Path) -> None:
    loop = "{% for i in range(99999) %}"
    make_tiny(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(f"{loop}{loop}{{% endfor %}}{{% endfor %}}")
    with serving(str(tmp_path), "--name", BASE) as running:
        answer = post(running)
        assert answer.status_code == 400
        assert "it computes for longer than" in answer.json()["error"]["message"]
        assert httpx.get(running.url.replace("/v1", "/health"), timeout=NORMAL_S).status_code == 200


def test_connections_that_say_nothing_are_ended_and_a_name_that_was_bound_opens_the_door() -> None:
    impatient = "from trajkit.models.serving import server; server._HEAD_S = 1; "
    program = f"{impatient}from trajkit.cli.main import main; main()"
    with serving(BASE, "--host", "0.0.0.0", program=program) as running, silence(running) as opened:
        url = running.url.replace("0.0.0.0", "127.0.0.1")
        assert post(running._replace(url=url), max_tokens=3, timeout=NORMAL_S).status_code == 200
        for name, status in (("127.0.0.1", 200), ("evil.example", 403), (socket.gethostname(), 200)):
            assert httpx.get(f"{url}/models", headers={"host": name}, timeout=60).status_code == status
        for each in opened:
            each.settimeout(60)
            assert each.recv(100) == b""
