"""Write JSON values as template expressions that print and compare as in the gateway.

Values passed from Python print as Python does (`{'b': True}`), in the order of their keys and with Python's
methods; the gateway's print as JSON does, sorted by key. An expression makes the engine's own values.
"""

from __future__ import annotations

import json
import math
from typing import Any

from trajkit.errors import DataError

_text = json.JSONEncoder(ensure_ascii=False).encode

_LEAST, _MOST = -(2**63), 2**64 - 1


def expression(value: Any) -> str:
    """Return an expression for a value from `read_json`.

    Raises:
        DataError: A number is infinite.
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _float(value) if is_float(value) else str(value)
    if isinstance(value, dict):
        # sorted as the gateway's maps are: by the code points of the keys
        pairs = (f"{_text(key)}: {expression(value[key])}" for key in sorted(value))
        return f"{{{', '.join(pairs)}}}"
    return f"[{', '.join(map(expression, value))}]"


def is_float(number: int | float) -> bool:
    """Whether the gateway has a float for a number: its integers have 64 bits."""
    return isinstance(number, float) or not _LEAST <= number <= _MOST


def _float(number: float) -> str:
    try:
        converted = float(number)
    except OverflowError as error:
        raise DataError("the input has a number that is too large") from error
    if not math.isfinite(converted):
        raise DataError("the input has a number that is too large")
    return repr(converted)


def read_json(text: str) -> Any:
    """Parse a JSON text as the gateway does: `-0` is a float there.

    Raises:
        DataError: It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_int=_integer, parse_constant=_refuse)
    except RecursionError as error:
        raise DataError("the input is nested too deeply") from error
    except ValueError as error:
        raise DataError("the input is not JSON") from error


def _integer(digits: str) -> int | float:
    return -0.0 if digits == "-0" else int(digits)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
