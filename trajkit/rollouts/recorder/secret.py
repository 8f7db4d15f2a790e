"""Keep secrets out of the journal: request bodies have some, for tools that the service calls."""

from __future__ import annotations

import json
from typing import Any

from trajkit._core.secrets import HIDDEN, Keys

_NAMES = frozenset({"authorization", "headers", "extra_headers", "api_key", "domain_secrets", "access_token"})
_SIGNS = tuple(f'"{name}'.encode() for name in sorted(_NAMES))
_CONTENT = frozenset({"messages", "input", "instructions", "response_format", "text", "functions"})
"""Fields that the model reads, or of schemas: names of secrets are ordinary words there."""


def may_have_secrets(piece: bytes, keys: Keys) -> bool:
    """Check whether a piece of a request has the name of a secret, or a key."""
    return any(sign in piece for sign in _SIGNS) or without_keys(piece, keys) != piece


def without_secrets(body: bytes, keys: Keys) -> bytes:
    """Hide the secrets in a request body; return the same bytes when there is none.

    Args:
        body: JSON as it was sent.
        keys: Keys that must not be recorded.
    """
    if any(sign in body for sign in _SIGNS):
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and _hide(value):
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            body = text.encode("utf-8", "surrogatepass")
    return without_keys(body, keys)


def without_keys(body: bytes, keys: Keys) -> bytes:
    """Hide keys; return the same bytes when there is none."""
    found = keys.hide(body.decode("utf-8", "surrogateescape"))
    return found.text.encode("utf-8", "surrogateescape") if found.n_hidden else body


def _hide(request: dict[str, Any]) -> bool:
    found = False
    for name, value in request.items():
        if name in _NAMES:
            request[name] = HIDDEN
            found = True
        elif name not in _CONTENT:
            found |= _hide_in(value)
    return found


def _hide_in(value: Any) -> bool:
    """Hide values with a secret's name, at any depth, except for those in a function's schema."""
    found = False
    if isinstance(value, list):
        for item in value:
            found |= _hide_in(item)
    elif isinstance(value, dict) and value.get("type") not in ("function", "custom"):
        for name, item in value.items():
            if name.lower() in _NAMES and item is not None:
                value[name] = HIDDEN
                found = True
            else:
                found |= _hide_in(item)
    return found
