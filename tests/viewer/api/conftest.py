"""Stores that are looked at, and a client that asks the page's server as anything may, browser or not."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from tests.viewer.api.stores import odd, ten, tuned
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks one server."""

    def __init__(self, server: PageServer) -> None:
        self.url = server.url
        self.port = int(server.url.rstrip("/").rpartition(":")[2])

    def send(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        """One request, with nothing in it that is not asked for but Host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(
                method, target, skip_host="Host" in (headers or {}), skip_accept_encoding=True
            )
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            found = connection.getresponse()
            return Reply(
                found.status, {name.lower(): value for name, value in found.getheaders()}, found.read()
            )
        finally:
            connection.close()

    def ask(self, name: str, **words: Any) -> Any:
        """The answer of the API, which must be one."""
        reply = self.reply(name, **words)
        assert reply.status == 200, reply.body
        return reply.json

    def reply(self, name: str, **words: Any) -> Reply:
        """The same, whatever comes back. `metric__x__min` stands for `metric.x.min`."""
        spelled = {word.replace("__", "."): value for word, value in words.items()}
        return self.send("GET", f"/api/{name}?{urlencode(spelled, doseq=True)}")

    def ids(self, **words: Any) -> list[str]:
        """The ids of a list."""
        return [row["id"] for row in self.ask("episodes", **words)["rows"]]


@pytest.fixture(scope="session")
def ten_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ten(tmp_path_factory.mktemp("before") / "ten")


@pytest.fixture(scope="session")
def tuned_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned(tmp_path_factory.mktemp("after") / "tuned")


@pytest.fixture(scope="session")
def odd_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return odd(tmp_path_factory.mktemp("odd") / "odd")


@pytest.fixture(scope="session")
def client(ten_store: Path, tuned_store: Path, odd_store: Path) -> Iterator[Client]:
    """A server of three stores: 0 has ten episodes, 1 four of the same worlds, 2 what is rare."""
    with Shelf([ten_store, tuned_store, odd_store]) as shelf, PageServer(shelf) as server:
        shelf.wait()
        yield Client(server)
