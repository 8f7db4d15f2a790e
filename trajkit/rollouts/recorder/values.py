"""Check a user's values when they are given, so that the store can always be written at the end."""

from __future__ import annotations

import json
import math
from typing import Any

from trajkit.errors import RequestError

_LEAST, _MOST = -(2**63), 2**63 - 1


def seed_number(value: Any) -> int | None:
    """Check a seed, or None.

    Raises:
        RequestError: It is not a whole number of 64 bits.
    """
    plain = value.item() if hasattr(value, "item") else value
    if plain is not None and (
        not isinstance(plain, int) or isinstance(plain, bool) or not _LEAST <= plain <= _MOST
    ):
        raise RequestError(f"a seed is a whole number of 64 bits, not {plain!r}")
    return plain


def number(value: Any, what: str) -> float:
    """Return a finite number; numpy's numbers are accepted, too.

    Raises:
        RequestError: The value is not a finite number.
    """
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        raise RequestError(f"{what} is a finite number, not {value!r}")
    return float(plain)


def text(value: Any, what: str) -> Any:
    """Check a text, or None.

    Raises:
        RequestError: The value is neither, or has half of a surrogate pair.
    """
    if value is not None and not isinstance(value, str):
        raise RequestError(f"{what} is text, not {value!r}")
    return json_value(value, what)


def flag(value: Any, what: str) -> bool | None:
    """Check a boolean, or None.

    Raises:
        RequestError: The value is something else.
    """
    plain = value.item() if hasattr(value, "item") else value
    if plain is not None and not isinstance(plain, bool):
        raise RequestError(f"{what} is True, False or None, not {value!r}")
    return plain


def json_value(value: Any, what: str) -> Any:
    """Return the value as it is read back from JSON.

    Raises:
        RequestError: The value is not JSON.
    """
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
        written.encode()
    except (TypeError, ValueError) as error:
        raise RequestError(f"{what} cannot be kept as JSON: {error}") from error
    return json.loads(written)
