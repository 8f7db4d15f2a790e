"""What is wrong with the content of a message: texts, parts, images."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from trajkit.formats.openai_rules import SPECIAL_TOKEN
from trajkit.formats.validation.finding import Flaw, Severity, shown, wrong_type
from trajkit.formats.validation.target import Target

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_IMAGE_BYTES = 10_000_000
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp")
_DATA_URL = re.compile(r"data:(?P<type>[^;,]+)(?P<is_base64>;base64)?,(?P<data>.*)", re.DOTALL)


def content_flaws(
    content: Any, path: str, role: str, target: Target, *, may_be_empty: bool
) -> Iterator[Flaw]:
    """What is wrong with the content of a message of this role.

    Args:
        content: A text, a list of parts, or whatever stands there.
        path: Where it is.
        role: The message's role.
        target: Whose rules.
        may_be_empty: Whether the message says something without it.
    """
    if isinstance(content, str):
        if not content and not may_be_empty:
            yield Flaw(f"empty {role} message", path, "leave the message out, or the row", '""')
        yield from text_flaws(content, path, target)
    elif content is None:
        if not may_be_empty:
            yield Flaw(f"{role} message without content", path, "a text, or tool_calls beside it", "null")
    elif isinstance(content, list):
        yield from _part_flaws(content, path, role, target)
    else:
        yield wrong_type(path, "a text or a list of parts", content)


def _part_flaws(parts: list[Any], path: str, role: str, target: Target) -> Iterator[Flaw]:
    if not parts:
        yield Flaw(f"empty {role} message", path, "leave the message out, or the row", "[]")
    if target.arguments == "object":
        hint = "many chat templates take texts only: write the parts as one text"
        yield Flaw("content in parts", path, hint, severity=Severity.WARNING)
    for index, part in enumerate(parts):
        where = f"{path}[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            if isinstance(part.get("text"), str):
                yield from text_flaws(part["text"], f"{where}.text", target)
            else:
                yield wrong_type(f"{where}.text", "a text", part.get("text"))
        elif kind == "image_url":
            yield from _image_flaws(part, where, role, target)
        else:
            yield Flaw(
                "part of a type that is not taken", where, "text and image_url are", shown(kind or part)
            )


def _image_flaws(part: dict[str, Any], where: str, role: str, target: Target) -> Iterator[Flaw]:
    holder = part.get("image_url")
    url = holder.get("url") if isinstance(holder, dict) else None
    at = f"{where}.image_url.url"
    if target.max_images is None:
        yield Flaw("an image", where, f"{target.name} takes none: convert again without images")
    elif role != "user":
        yield Flaw(f"an image in a message of role {role}", where, "only the user's messages may have images")
    elif not isinstance(url, str):
        yield wrong_type(at, "a URL", url)
    elif url.startswith("data:"):
        yield from _data_flaws(url, at)
    elif not url.startswith("https://"):
        yield Flaw("an image that is neither at https:// nor inside", at, "put it in as data:", shown(url))


def _data_flaws(url: str, at: str) -> Iterator[Flaw]:
    found = _DATA_URL.fullmatch(url)
    if found is None or not found["is_base64"]:
        yield Flaw("not a data URL", at, "as data:image/png;base64,…", shown(url))
        return
    if found["type"] not in _IMAGE_TYPES:
        yield Flaw("an image of another type", at, f"one of {', '.join(_IMAGE_TYPES)}", found["type"])
    try:
        n_bytes = len(b64decode(found["data"], validate=True))
    except (binascii.Error, ValueError):
        yield Flaw("an image that is not base64", at, "encode it again", shown(url))
        return
    if n_bytes > _MAX_IMAGE_BYTES:
        yield Flaw("an image over 10 MB", at, "make it smaller", f"{n_bytes / 1e6:.1f} MB")


def n_images(messages: Any) -> int:
    """How many images a list of messages has."""
    return sum(
        1
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for part in message["content"]
        if isinstance(part, dict) and part.get("type") == "image_url"
    )


def text_flaws(text: str, path: str, target: Target) -> Iterator[Flaw]:
    """What is wrong with a text by itself."""
    if target.refuses_special_tokens and (found := SPECIAL_TOKEN.search(text)):
        yield Flaw(
            "special token", path, "the service refuses such texts: leave the row out", shown(found[0])
        )
    if _SURROGATE.search(text):
        yield Flaw(
            "half of a character (a lone surrogate)", path, "no UTF-8 file can hold it: mend the source"
        )
