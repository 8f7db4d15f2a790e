"""Call a service over HTTP without redirects; answers are limited in size and depth, and lose the key."""

from __future__ import annotations

import functools
import importlib
import json
import math
import ssl
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from trajkit._core.secrets import hidden
from trajkit.errors import RequestError
from trajkit.schema.base import MOST
from trajkit.training.hosted.answer import Unreachable

MOST_BYTES, LONGEST_S = 32 << 20, 600.0
"""Most bytes and seconds of an answer."""
_LONGEST_TEXT, _DEEPEST = 8_000, 24
"""Most characters of a text, and levels of nesting. A signed address has up to three thousand characters."""


def checked_address(url: str) -> str:
    """Check that a URL can be the address of an API, and holds no password.

    Raises:
        RequestError: It cannot, or holds one.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RequestError(f"{url!r} is not the address of an API", hint="such as https://api.openai.com/v1")
    if "@" in parts.netloc:
        raise RequestError(
            f"the address of {parts.hostname} holds a password, and addresses are recorded",
            hint="set keys in the environment only",
        )
    return url


def client(kind: type[Any], key: SecretStr | None, **options: Any) -> Any:
    """Return an httpx client that follows no redirects, and reads and cleans whole answers.

    Args:
        kind: The client's class, which differs between packages.
        key: The key to remove from answers.
        options: Options of the class.
    """

    class Client(kind):  # type: ignore[misc]
        def send(self, request: Any, *, stream: bool = False, **more: Any) -> Any:
            answer = super().send(request, stream=True, **more)
            try:
                content = _read(answer)
            finally:
                answer.close()
            kept = [(name, value) for name, value in answer.headers.multi_items() if name not in _OF_BODY]
            return type(answer)(
                answer.status_code,
                headers=kept,
                content=harmless(content, key),
                request=answer.request,
                extensions=answer.extensions,
            )

    library = next(base.__module__ for base in kind.__mro__ if base.__name__ == "Client")
    return Client(follow_redirects=False, verify=_certificates(library), **options)


@functools.cache
def _certificates(library: str) -> ssl.SSLContext:
    """Return the certificates that a library trusts, cached because reading them is slow."""
    trusted: ssl.SSLContext = importlib.import_module(library).create_ssl_context()
    return trusted


def pauses() -> Iterator[bool]:
    """Pause between the repetitions of a question, longer each time.

    Yields:
        Whether more time is left; after False the last one was asked.
    """
    deadline, pause_s = time.monotonic() + LONGEST_S, 0.2
    while time.monotonic() < deadline:
        yield True
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 10)
    yield False


_OF_BODY = ("content-encoding", "content-length", "transfer-encoding")


def _read(answer: Any) -> bytes:
    content, deadline = bytearray(), time.monotonic() + LONGEST_S
    for piece in answer.iter_bytes():
        content += piece
        if len(content) > MOST_BYTES or time.monotonic() > deadline:
            limit = f"{MOST_BYTES >> 20} MiB" if len(content) > MOST_BYTES else f"{LONGEST_S:g} s"
            raise Unreachable(
                f"{answer.request.url.host} sends an answer of more than {limit}",
                hint="is that the address of its API?",
            )
    return bytes(content)


def harmless(content: bytes, *secrets: SecretStr | str | None) -> bytes:
    """Remove secrets from an answer, and from JSON also depth, long texts, huge numbers and NaN.

    Args:
        content: The answer. JSON that is too deep to parse becomes a JSON text of its beginning.
        secrets: The secrets to remove.
    """
    text = content.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except ValueError:
        masked = hidden(text, *secrets)
        return content if masked == text else masked.encode()
    except RecursionError:
        value = text
    return hidden(json.dumps(_harmless(value, secrets), ensure_ascii=False), *secrets).encode()


def _harmless(value: Any, secrets: tuple[SecretStr | str | None, ...], depth: int = 0) -> Any:
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT:  # hide secrets first, so that no half of one remains at the end
            value = hidden(value, *secrets)[:_LONGEST_TEXT]
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) <= MOST else None
    if isinstance(value, dict | list) and depth == _DEEPEST:
        return None
    if isinstance(value, dict):
        return {_harmless(name, secrets): _harmless(each, secrets, depth + 1) for name, each in value.items()}
    return [_harmless(each, secrets, depth + 1) for each in value] if isinstance(value, list) else value
