"""Translate the HTTP status of an OpenAI-compatible server into a fault of the run."""

from __future__ import annotations

import email.utils
import json
import math
import time
from collections.abc import Mapping
from typing import Any

from trajkit.rollouts.faults import Fault, FaultKind, retry_after_s

_NO_CREDIT = "insufficient_quota"
"""OpenAI's code for a 429 that does not pass: the account is empty."""


def fault_of_status(status: int, message: str, *, code: str | None, headers: Mapping[str, str]) -> Fault:
    """Return the fault for a status that is not a success.

    Args:
        status: 400 to 599.
        message: The message to show.
        code: The code in the server's answer; None without.
        headers: Headers of the answer; looked up in lower case.
    """
    wait_s = _retry_after_s(headers, message)
    if status == 429 and code != _NO_CREDIT:
        return Fault(FaultKind.RATE_LIMIT, message, retry_after_s=wait_s)
    if status in (408, 504):
        return Fault(FaultKind.TIMEOUT, message, retry_after_s=wait_s)
    if status >= 500 or status in (409, 425):
        return Fault(FaultKind.SERVER, message, retry_after_s=wait_s)
    return Fault(FaultKind.REFUSED, message, is_lasting=True)


def said_in(body: Any) -> str | None:
    """Return the server's message in the body of an error, from any of its usual places; None without one."""
    if not body:
        return None
    if isinstance(body, Mapping):
        for name in ("message", "detail", "error"):
            if isinstance(said := body.get(name), str):
                return said
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)


def _retry_after_s(headers: Mapping[str, str], text: str) -> float | None:
    """Return the seconds until the next request, by a header, in seconds or as a date, or by the message."""
    if (milliseconds := _seconds(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    if (seconds := _seconds(header)) is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header or "").timestamp() - time.time())
    except ValueError:
        return retry_after_s(text)


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
