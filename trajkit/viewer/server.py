"""Serve the page on loopback, and refuse requests that other web pages send."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from trajkit.errors import NothingMatched, RequestError, TrajkitError
from trajkit.stack.loopback import HOST, LoopbackHandler, LoopbackServer
from trajkit.viewer.about import charts, stores
from trajkit.viewer.episode import episode, messages, text
from trajkit.viewer.filter import Words
from trajkit.viewer.listing import episodes
from trajkit.viewer.shelf import Shelf

_API: dict[str, Callable[[Shelf, Words], dict[str, Any]]] = {
    "/api/stores": stores,
    "/api/episodes": episodes,
    "/api/episode": episode,
    "/api/messages": messages,
    "/api/text": text,
    "/api/charts": charts,
}
_MOST_WORDS = 1000
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    media_type: str
    body: bytes


def page_files() -> dict[str, Answer]:
    """Return all files of the page by name. The server sends no other file, whatever a request names."""
    return {
        each.name: Answer(200, _TYPES[kind], each.read_bytes())
        for each in (resources.files("trajkit.viewer") / "page").iterdir()
        if (kind := each.name.rpartition(".")[2]) in _TYPES
    }


def answer(shelf: Shelf, path: str, query: str) -> Answer:
    """Return the answer to a GET.

    Args:
        shelf: The stores.
        path: Path of the address, not decoded: no file name needs decoding.
        query: Query of the address, without the question mark.
    """
    if path in _API:
        return _answered(shelf, path, query)
    name = "index.html" if path == "/" else path.removeprefix("/page/")
    found = page_files().get(name) if path == "/" or path.startswith("/page/") else None
    if found is None or (name == "index.html") != (path == "/"):
        return refused(404, f"there is no page {path[:200]}")
    return found


def refused(status: int, message: str, hint: str | None = None) -> Answer:
    """Return an error answer."""
    return _json(status, {"error": message, "hint": hint})


def _answered(shelf: Shelf, path: str, query: str) -> Answer:
    try:
        return _json(200, _API[path](shelf, _words(query)))
    except NothingMatched as error:
        return refused(404, error.message, error.hint)
    except RequestError as error:
        return refused(400, error.message, error.hint)
    except TrajkitError as error:
        return refused(500, error.message, error.hint)


def _words(query: str) -> Words:
    try:
        words = parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_WORDS, errors="strict")
    except ValueError as error:
        raise RequestError(f"the address cannot be read: {error}") from error
    if any("\0" in value for values in words.values() for value in values):
        raise RequestError("the address cannot be read: it has a character 0")
    return words


def _json(status: int, value: dict[str, Any]) -> Answer:
    body = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return Answer(status, "application/json; charset=utf-8", body)


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer: the page runs only its own scripts, calls only its server, and is not framed."""


class PageServer(LoopbackServer):
    """The page of some stores, served in threads of this process until it is closed. Also a context manager.

    Args:
        shelf: The stores. It is not closed at the end.
        port: Port on loopback; 0 takes a free one.

    Raises:
        StackError: The port is taken, or may not be used.
    """

    def __init__(self, shelf: Shelf, *, port: int = 0) -> None:
        self.shelf = shelf
        super().__init__(port, _Handler)
        own = self.server_address[1]
        self.hosts = frozenset({f"{HOST}:{own}", f"localhost:{own}"})
        self.origins = frozenset(f"http://{host}" for host in self.hosts)
        self.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"{super().url}/"


class _Handler(LoopbackHandler):
    server: PageServer
    server_version = "trajkit-view"

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body is not read, and must not be parsed as the next request
        if (why := self._refusal()) is not None:
            self._send(refused(HTTPStatus.FORBIDDEN, why))
            return
        path, _, query = self.path.partition("?")
        found = refused(
            HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed", "`trajkit --debug view` shows the error"
        )
        try:
            found = answer(self.server.shelf, path, query)
        finally:
            self._send(found)

    do_HEAD = do_GET

    def _refusal(self) -> str | None:
        """Return the reason to refuse this request; None when it is answered.

        A page of another site can make a browser send requests to this address, even under a name of its own
        (DNS rebinding). The browser then sends the page's origin and that name.
        """
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].strip().lower() not in self.server.hosts:
            return "this server answers only under its own address"
        origins = self.headers.get_all("Origin", [])
        if any(origin.strip().lower() not in self.server.origins for origin in origins):
            return "this server answers only its own page"
        comes_from = self.headers.get("Sec-Fetch-Site", "none").strip().lower()
        is_opened = self.headers.get("Sec-Fetch-Mode", "").strip().lower() == "navigate"
        if comes_from not in ("none", "same-origin") and not (is_opened and self.path == "/"):
            return "this server answers only its own page"
        return None

    def _send(self, found: Answer) -> None:
        allowed = {"Allow": "GET, HEAD"} if found.status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        self.send(found.status, found.media_type, found.body, {**_HEADERS, **allowed})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer other methods and malformed requests with JSON, too."""
        self.close_connection = True
        self.request_version = self.protocol_version  # without a version, HTTP/0.9 would send no headers
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, "this server is read-only: GET and HEAD"
        self._send(refused(code, message or explain or "bad request"))
