"""The server: for its own page only, on loopback only, and unmoved by hostile requests."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.viewer.api.conftest import Client
from trajkit.errors import RequestError, StackError, StoreError
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf


def test_the_page_and_its_files_are_served_with_a_policy(client: Any) -> None:
    reply = client.send("GET", "/")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert client.send("GET", "/page/app.css").headers["content-type"] == "text/css; charset=utf-8"
    assert client.send("GET", "/page/main.js").headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize("target", ["/", "/page/app.css", "/api/stores", "/nothing", "/api/episodes?x=1"])
def test_every_answer_says_that_it_is_for_this_page_only(client: Any, target: str) -> None:
    headers = client.send("GET", target).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "Python" not in headers["server"]


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", "", "0.0.0.0:{port}"],
)
def test_a_name_that_was_made_to_lead_here_is_refused(client: Any, host: str) -> None:
    for target in ("/", "/api/stores"):
        reply = client.send("GET", target, {"Host": host.format(port=client.port)})
        assert reply.status == 403
        assert b"ten" not in reply.body


def test_the_server_answers_under_both_names_of_loopback(client: Any) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert client.send("GET", "/api/stores", {"Host": f"{name}:{client.port}"}).status == 200


def test_a_request_without_a_host_or_with_two_is_refused(client: Any) -> None:
    for hosts in ("", f"Host: 127.0.0.1:{client.port}\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as raw:
            raw.sendall(f"GET /api/stores HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_another_page_gets_nothing(client: Any, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=client.port) for name, value in headers.items()}
    reply = client.send("GET", "/api/stores", sent)
    assert reply.status == 403
    assert reply.json["error"].startswith("this server answers only")


def test_its_own_page_and_a_link_to_it_are_answered(client: Any) -> None:
    own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.send("GET", "/api/stores", own).status == 200
    assert (
        client.send("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status == 200
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_only_get_and_head_are_answered(client: Any, method: str) -> None:
    reply = client.send(method, "/api/stores")
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD"
    assert reply.json["error"] == "this server is read-only: GET and HEAD"


def test_head_says_how_long_the_answer_is_and_sends_none(client: Any) -> None:
    whole, head = client.send("GET", "/api/stores"), client.send("HEAD", "/api/stores")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.body))


def test_a_body_is_not_taken_for_the_next_request(client: Any) -> None:
    inner = f"GET /api/stores HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n"
    outer = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nContent-Length: {len(inner)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as raw:
        raw.sendall((outer + inner).encode())
        received = b"".join(iter(lambda: raw.recv(65536), b""))
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "target",
    [
        "/../pyproject.toml",
        "/page/../view.py",
        "/page/..%2fview.py",
        "/page/%2e%2e/view.py",
        "/page/..\\view.py",
        "/page//etc/passwd",
        "//etc/passwd",
        "/page/",
        "/page",
        "/page/index.html",
        "/index.html",
        "/page/app.css%00.js",
        "/page/./app.css",
        "http://evil.example/page/app.css",
        "/api/",
        "/api/stores/",
        "/api/../api/stores",
        "/manifest.json",
        "*",
    ],
)
def test_there_is_nothing_beside_the_files_of_the_page(client: Any, target: str) -> None:
    reply = client.send("GET", target, {"Host": f"127.0.0.1:{client.port}"})
    assert reply.status == 404
    assert reply.json["error"].startswith("there is no ")
    assert b"root:" not in reply.body


@pytest.mark.parametrize(
    ("name", "query", "said"),
    [
        ("episodes", "nonsense=1", "'nonsense' is not a parameter of this address"),
        ("episodes", "metric.none.min=1", "is not a parameter of this address"),
        ("episodes", "n_steps.min=abc", "it must be a number"),
        ("episodes", "n_steps.min=nan", "it must be a number"),
        ("episodes", "n_steps.min=1e999", "it must be a number"),
        ("episodes", "limit=-1", "a whole number of 0 or more"),
        ("episodes", "offset=1;drop", "a whole number of 0 or more"),
        ("episodes", "offset=%D9%A3", "a whole number of 0 or more"),
        ("episodes", "sort=haystack", "'haystack' is not a column to sort by"),
        ("episodes", "sort=n_steps%3B%20drop%20table%20rows", "is not a column to sort by"),
        ("episodes", "where=nonsense+%3E+1", "no column 'nonsense'"),
        ("episodes", "where=1;+drop+table+rows", "1; drop table rows"),
        ("episodes", "where=read_text('/etc/passwd')+is+not+null", "read_text"),
        ("episodes", "where=seed", "not a boolean"),
        ("episodes", "where=" + "not+" * 2_000 + "seed", "nested more than 100 deep"),
        ("episodes", "where=" + "a" * 10_001, "10,001 characters"),
        ("episodes", "q=" + "a" * 10_001, "10,001 characters"),
        ("episodes", "q=" + "+".join(f"w{n}" for n in range(51)), "q has 51 words"),
        ("episodes", "q=a&q=b", "given 2 times"),
        ("episodes", "&".join(["task=x"] * 501), "given 501 times"),
        ("episodes", "&".join(["task=x"] * 1001), "the address cannot be read"),
        ("episodes", "task=%ff", "the address cannot be read"),
        ("episodes", "q=a%00b", "a character 0"),
        ("episode", "store=0", "id is missing"),
        ("episode", "store=0&id=ep-0&where=true", "'where' is not a parameter of this address"),
        ("messages", "store=0&id=ep-0", "step is missing"),
        ("stores", "x=1", "'x' is not a parameter of this address"),
        ("charts", "nonsense=1", "'nonsense' is not a parameter of this address"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_was_wrong(
    client: Any, name: str, query: str, said: str
) -> None:
    reply = client.send("GET", f"/api/{name}?{query}")
    assert reply.status == 400
    assert said in reply.json["error"]
    assert client.ask("episodes", limit=0)["total"] == 17


def test_a_request_line_without_end_and_a_broken_one_are_refused(client: Any) -> None:
    for sent, status in (
        (b"GET /".ljust(65_537, b"a"), b"414"),
        (b"GARBAGE\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"\x16\x03\x01\r\n", b"400"),
    ):
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as raw:
            raw.sendall(sent)
            assert raw.recv(1000).startswith(b"HTTP/1.1 " + status)


def test_hostile_names_come_as_json_and_nothing_else(client: Any) -> None:
    reply = client.send("GET", "/api/episodes?store=2")
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert any("<script>" in row["id"] for row in json.loads(reply.body)["rows"])
    missing = client.send("GET", f"/{quote('<script>alert(1)</script>')}")
    assert missing.headers["content-type"] == "application/json; charset=utf-8"


def test_the_server_listens_on_loopback_and_nowhere_else(client: Any) -> None:
    # another address of this machine, at which a server on all addresses would answer
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", client.port), timeout=2)


def test_a_port_that_is_taken_is_an_error_that_says_the_way_out(client: Any, ten_store: Path) -> None:
    with Shelf([ten_store]) as shelf, pytest.raises(StackError, match=f"127.0.0.1:{client.port}") as raised:
        PageServer(shelf, port=client.port)
    assert "--port 0" in raised.value.hint


def test_closing_ends_idle_connections_and_frees_the_port(ten_store: Path) -> None:
    with Shelf([ten_store]) as shelf:
        server = PageServer(shelf)
        port = Client(server).port
        with socket.create_connection(("127.0.0.1", port), timeout=10) as idle:
            idle.sendall(f"HEAD / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert idle.recv(10_000).endswith(b"\r\n\r\n")
            server.close()
            server.close()
            assert idle.recv(1) == b""
        PageServer(shelf, port=port).close()


def test_a_store_that_cannot_be_trusted_is_not_shown(ten_store: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(ten_store, tmp_path / "changed")
    part = next((tmp_path / "changed" / "steps").iterdir())
    part.write_bytes(part.read_bytes()[:-9] + b"123456789")
    with pytest.raises(StoreError, match="sha256 differs"):
        Shelf([tmp_path / "changed"])
    shutil.copytree(ten_store, tmp_path / "newer")
    manifest = json.loads((tmp_path / "newer" / "manifest.json").read_text())
    (tmp_path / "newer" / "manifest.json").write_text(json.dumps({**manifest, "format_version": 2}))
    with pytest.raises(StoreError, match="store version 2"):
        Shelf([ten_store, tmp_path / "newer"])
    with pytest.raises(StoreError, match="there is no store"):
        Shelf([tmp_path / "missing"])
    with pytest.raises(RequestError, match="named twice"):
        Shelf([ten_store, ten_store])
    with pytest.raises(RequestError, match="no store is named"):
        Shelf([])


def test_stores_of_one_name_are_told_apart(ten_store: Path, tmp_path: Path) -> None:
    import shutil

    for side in ("before", "after"):
        shutil.copytree(ten_store, tmp_path / side / "run" / "ten")
    with Shelf([tmp_path / "before" / "run" / "ten", tmp_path / "after" / "run" / "ten"]) as shelf:
        assert [one.name for one in shelf.stores] == ["before/run/ten", "after/run/ten"]
