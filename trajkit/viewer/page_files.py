"""Load the files of the page, which are part of the package."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str


def page_files() -> dict[str, PageFile]:
    """Return all files by name. The server sends no other file, whatever a request names."""
    found = {}
    for each in sorted((resources.files("trajkit.viewer") / "page").iterdir(), key=lambda each: each.name):
        media_type = _TYPES.get(each.name.rpartition(".")[2])
        if each.is_file() and media_type is not None:
            found[each.name] = PageFile(each.read_bytes(), media_type)
    return found
