"""The kinds of failure between an agent and its model that the agent did not cause."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trajkit._core.secrets import hidden


class FaultKind(StrEnum):
    """Kinds of failure that are not the agent's choice."""

    TIMEOUT = "timeout"
    """No answer in time."""
    RATE_LIMIT = "rate limit"
    """The provider asked for fewer requests (429)."""
    SERVER = "server error"
    """The provider or the gateway reported an internal error (5xx)."""
    CONNECTION = "connection"
    """No connection, or it was closed before the answer came."""
    UNREADABLE = "unreadable response"
    """The response is not one of the provider's API."""
    REFUSED = "refused"
    """The provider refused this request; a retry will not help."""
    NOT_STORED = "not stored"
    """The database could not be written, or lost rows."""
    ENVIRONMENT = "environment error"
    """The environment itself failed, or broke its contract."""
    CLOCK = "clock"
    """The clock was set back, so that the steps of the episode are out of order in the database."""
    EPISODE_TIMEOUT = "episode timeout"
    """The whole episode took too long."""
    AGENT = "agent error"
    """The agent's own code failed."""


class Fault(NamedTuple):
    """One failure of a service, which ended an episode."""

    kind: FaultKind
    message: str
    """The service's message, shortened, without credentials."""
    is_lasting: bool = False
    """A retry will not help."""
    retry_after_s: float | None = None
    """Seconds that the service asks to wait before a retry; None when it gave none."""


class Faulty(Exception):
    """Raised by a policy whose service failed; the runner turns it into a record. Never leaves the runner."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind}: {fault.message}")
        self.fault = fault


_PROVIDER_STATUS = re.compile(r"Error (4\d\d) [^:]*? from \S+ client")
_MAX_CHARACTERS = 300

# "Please try again in 1m30.5s", or in 20ms (OpenAI); "Please retry after 7 seconds" (Azure); a quoted header
_TIME = r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|h|hours?|m|min|minutes?|s|sec|seconds?|)(?![a-z])\s*"
_RETRY_AFTER = re.compile(rf"(?:try again in|retry[- ]after\W{{0,4}})\s*((?:{_TIME})+)", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "h": 3600.0, "ho": 3600.0}


def retry_after_s(text: str) -> float | None:
    """Return the seconds that a service asks to wait in its message; None when it gives none."""
    found = _RETRY_AFTER.search(text)
    if found is None:
        return None
    parts = re.findall(_TIME, found[1], re.IGNORECASE)
    return sum(float(number) * _unit_s(unit.lower()) for number, unit in parts)


def _unit_s(unit: str) -> float:
    if unit.startswith("milli"):
        return 0.001
    return _SECONDS.get(unit[:2], 1.0)


def shown(text: str) -> str:
    """A service's message on one line, shortened, without keys and passwords."""
    line = " ".join(hidden(text).split())
    return line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 1] + "…"


def shown_url(url: str) -> str:
    """Return an address without credentials."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")


def timed_out(seconds: float) -> Fault:
    """Return the fault of a missing answer."""
    return Fault(FaultKind.TIMEOUT, f"no answer in {seconds:g} s")


def fault_without_status(text: str) -> Fault:
    """Return the fault for an error of the gateway's client that has no HTTP status."""
    if "timed out" in text:
        return Fault(FaultKind.TIMEOUT, shown(text))
    if "deserializing response" in text:
        return Fault(FaultKind.UNREADABLE, shown(text))
    return Fault(FaultKind.CONNECTION, shown(text))


def fault_with_status(status: int, text: str) -> Fault | None:
    """Return the fault for an HTTP status of the gateway.

    TensorZero 2026.6.0 answers 500 for all failures of its provider; only the text distinguishes a 429, a
    refusal, a broken connection and an unreadable body (each observed; a provider's 404 looks like its 500).

    Returns:
        None when the gateway refused the request itself, and would refuse every other one of this run.
    """
    message = shown(text)
    if status < 500:
        if status in (408, 429):
            return Fault(FaultKind.TIMEOUT, message) if status == 408 else _too_many(text)
        return Fault(FaultKind.NOT_STORED, message, True) if "does not exist" in text else None
    if "model providers failed" not in text:
        lost = "ClickHouse" in text or "Postgres" in text
        return Fault(FaultKind.NOT_STORED if lost else FaultKind.SERVER, message)
    if found := _PROVIDER_STATUS.search(text):
        if found[1] == "429":
            return _too_many(text)
        return Fault(FaultKind.REFUSED, message, True)
    if "Error parsing JSON response" in text or "invalid number of choices" in text:
        return Fault(FaultKind.UNREADABLE, message)
    if "Error sending request" in text:
        return Fault(FaultKind.TIMEOUT if "timed out" in text else FaultKind.CONNECTION, message)
    return Fault(FaultKind.SERVER, message)


def _too_many(text: str) -> Fault:
    return Fault(FaultKind.RATE_LIMIT, shown(text), retry_after_s=retry_after_s(text))


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
