"""What each address answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from trajkit.errors import NothingMatched, RequestError, TrajkitError
from trajkit.viewer.about import stores
from trajkit.viewer.asked import Words
from trajkit.viewer.charts import charts
from trajkit.viewer.episode import episode, messages, text
from trajkit.viewer.listing import episodes
from trajkit.viewer.page_files import page_files
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
_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    media_type: str
    body: bytes


def answer(shelf: Shelf, path: str, query: str) -> Answer:
    """The answer to a GET.

    Args:
        shelf: What there is to look at.
        path: Of the address, not decoded: no file has a name that needs it.
        query: What follows its question mark.
    """
    if path in _API:
        return _answered(shelf, path, query)
    name = "index.html" if path == "/" else path.removeprefix("/page/")
    found = page_files().get(name) if path == "/" or path.startswith("/page/") else None
    if found is None or (name == "index.html") != (path == "/"):
        return refused(404, f"there is no {path[:200]} here")
    return Answer(200, found.media_type, found.content)


def refused(status: int, message: str, hint: str | None = None) -> Answer:
    """An answer that says why there is none."""
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
