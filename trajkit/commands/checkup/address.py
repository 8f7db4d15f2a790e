"""An address, asked with little patience, and shown without what is secret in it."""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

CONNECT_S = 3.0
ANSWER_S = 5.0
_LONGEST_ANSWER = 65_536

UNREACHABLE = (OSError, ValueError, http.client.HTTPException)
"""The errors of `ask` and `reach` where nothing answers, or the address is not valid."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Gives a redirect as an answer: what is asked with a key goes to no other address."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


class Answer(NamedTuple):
    """What a server said."""

    status: int
    """HTTP's."""
    body: bytes
    """As much of it as is read."""


def ask(url: str, headers: Mapping[str, str] | None = None) -> Answer:
    """GET an address, whatever the status."""
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with _OPENER.open(request, timeout=ANSWER_S) as answer:
            return Answer(answer.status, answer.read(_LONGEST_ANSWER))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(_LONGEST_ANSWER))


def reach(host: str, port: int) -> None:
    """Raise quickly where nothing listens; the drivers of databases wait longer."""
    socket.create_connection((host, port), timeout=CONNECT_S).close()


def shown(url: str) -> str:
    """An address without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that is none"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def why(error: Exception) -> str:
    """Why nothing answered, in a few words; the text of the error may hold the address."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "it took too long"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    return (
        "it is no address" if isinstance(error, ValueError | http.client.InvalidURL) else type(error).__name__
    )
