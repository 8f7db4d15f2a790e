"""Keep keys and passwords out of messages, files and logs, in every form in which a library may show them.

A secret is a value that the caller names, or that of an environment variable whose name ends in KEY, TOKEN,
SECRET or PASSWORD. In a URL the credentials are secret. SECURITY.md has the rules.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, quote_plus, unquote

if TYPE_CHECKING:  # the command line loads this for its help, which needs no pydantic
    from pydantic import SecretStr

HIDDEN = "***"
"""Replaces a secret."""

_SHORTEST = 4
"""Characters. A shorter key is a placeholder, and hiding it would damage ordinary words."""
_SHORTEST_KEY, _SHORTEST_WORD = 8, 16
"""Least characters of a key that no ordinary text has: with a digit or a sign, and of letters alone."""
_DEEPEST = 3
"""Levels of JSON in a text of JSON, such as the arguments of a tool call in an answer."""
_NAMES = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)(?:_BEDROCK)?$")
_CREDENTIALS = re.compile(
    r"""(?<=://)(?![^/@\s]*:\*{3}@)[^/?#\s"'<>]+(?=@)|(?<=[?&]password=)[^&#\s"'<>]+""", re.IGNORECASE
)
_QUOTED_INPUT = re.compile(r"(?<=input_value=).*(?=, input_type=)")
"""The input that pydantic quotes: in a mistyped setting it may be a password."""


def hidden(text: str, *secrets: SecretStr | str | None) -> str:
    """Replace secrets in a text with asterisks, also those of the environment and credentials in URLs.

    Refused values that pydantic quotes are replaced, too.

    Args:
        text: The text to show or write.
        secrets: Other secrets. Each is also found as Python, JSON, HTML and URLs escape it.
    """
    forms = {form for form in _forms(secrets) if len(form) >= _SHORTEST}
    for form in sorted(forms | _forms(_environment()), key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    text = _QUOTED_INPUT.sub(HIDDEN, text)
    return _CREDENTIALS.sub(HIDDEN, text) if "://" in text else text


class Masked(NamedTuple):
    """Data without keys."""

    text: str
    """The text; the same object if it had no key."""
    n_hidden: int
    """Number of keys that were in it."""


class Keys:
    """Keys that training data must not have: those of the present environment, and others.

    Args:
        secrets: Keys besides those of the environment. Possible ordinary words are ignored.
    """

    def __init__(self, *secrets: SecretStr | str | None) -> None:
        keys = [value for each in secrets if is_key(value := _plain(each))]
        self._forms = sorted(_forms((*keys, *_environment())), key=len, reverse=True)

    def hide(self, text: str) -> Masked:
        """Replace the keys in JSON, or in a plain text."""
        n_hidden = 0
        for form in self._forms:
            if n := text.count(form):
                text, n_hidden = text.replace(form, HIDDEN), n_hidden + n
        return Masked(text, n_hidden)


def is_key(text: str) -> bool:
    """Whether a text is unlike ordinary words, so that ordinary texts can be searched for it."""
    return len(text) >= (_SHORTEST_WORD if text.isalpha() else _SHORTEST_KEY)


def names_a_secret(name: str) -> bool:
    """Whether a setting or environment variable of this name is a key or a password."""
    return _NAMES.search(name.upper()) is not None


def environment_keys() -> list[str]:
    """Return every key and password of the environment that no ordinary text has, stripped."""
    return sorted({secret.strip() for secret in _environment()})


def _environment() -> tuple[str, ...]:
    secrets = []
    for name, value in os.environ.items():
        if names_a_secret(name):
            secrets.append(value)
        elif "://" in value and "@" in value:
            secrets += _in_url(value)
    return tuple(secret for secret in secrets if is_key(secret.strip()))


def _in_url(url: str) -> list[str]:
    """Return the passwords of a URL, as written and decoded, and the header made from one."""
    user = url.partition("://")[2].rpartition("@")[0]
    passwords = [user.partition(":")[2], *re.findall(r"[?&]password=([^&#\s]+)", url)]
    header = base64.b64encode(unquote(user).encode()).decode() if ":" in user else ""
    return [text for one in passwords if one for text in (one, unquote(one), header) if text]


def _plain(secret: SecretStr | str | None) -> str:
    return secret if isinstance(secret, str) else secret.get_secret_value() if secret else ""


def _forms(secrets: tuple[SecretStr | str | None, ...]) -> set[str]:
    """Return each secret unchanged, stripped, and escaped in each of the usual ways."""
    forms: set[str] = set()
    for secret in map(_plain, secrets):
        is_address = "://" in secret and "?" not in secret  # the key itself may follow a ?
        whole = () if is_address else (secret, secret.strip())
        for plain in {*whole, *(_in_url(secret) if "://" in secret else ())} - {""}:
            raw = plain.encode("utf-8", "surrogatepass")
            forms |= {plain, repr(plain)[1:-1], repr(raw)[2:-1], quote(raw, safe=""), quote(raw)}
            forms |= {quote_plus(raw), html.escape(plain), base64.b64encode(raw).decode()}
            ascii_only = any_letter = plain
            for _ in range(_DEEPEST):
                ascii_only = json.dumps(ascii_only)[1:-1]
                any_letter = json.dumps(any_letter, ensure_ascii=False)[1:-1]
                forms |= {ascii_only, any_letter}
    return forms
