"""Keep keys and passwords out of messages, files and logs, in every form in which a library may show them."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

HIDDEN = "***"
"""What stands where a secret was."""

_SHORTEST = 4
"""Characters. A shorter key is a placeholder, and hiding it would spoil ordinary words."""


def hidden(text: str, *secrets: SecretStr | str | None) -> str:
    """Replace secrets in a text by asterisks.

    Args:
        text: What is about to be shown or written.
        secrets: What it must not hold. Each is also found as Python, JSON and URLs escape it.
    """
    for form in sorted(_forms(secrets), key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _forms(secrets: tuple[SecretStr | str | None, ...]) -> set[str]:
    """Each secret as it is, stripped, and escaped in each of the usual ways."""
    forms: set[str] = set()
    for secret in secrets:
        value = secret.get_secret_value() if isinstance(secret, SecretStr) else secret
        for plain in {value, value.strip()} if value else ():
            raw = plain.encode("utf-8", "surrogatepass")
            forms |= {plain, repr(plain)[1:-1], repr(raw)[2:-1], quote(raw, safe=""), quote(raw)}
            forms |= {quote_plus(raw), json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
    return {form for form in forms if len(form) >= _SHORTEST}
