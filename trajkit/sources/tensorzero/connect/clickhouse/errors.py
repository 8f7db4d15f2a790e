"""Translate every failure of ClickHouse and its client into one error with a plain message."""

from __future__ import annotations

import contextlib
import http.client
import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from trajkit._core.lazy import need
from trajkit._core.secrets import hidden
from trajkit.errors import RequestError, ServiceError, TrajkitError
from trajkit.sources.access import LimitReached
from trajkit.sources.tensorzero.connect.clickhouse.url import Address

_WRONG_USER = 516
_NO_DATABASE = 81
_READ_ONLY = 164
_NOT_ALLOWED = 452
_NO_RIGHT = 497
_MEMORY = 241
_LIMITS = {159: "time", 160: "time", 158: "rows", 307: "bytes", 396: "rows"}

_UNREACHABLE = ("Connection refused", "Max retries", "timed out", "resolve", "unreachable", "No route")
CUT_SHORT = "an answer ended before it was complete"
"""The message when only the end of an answer is missing."""

_BROKEN = (
    CUT_SHORT,
    "Connection broken",
    "IncompleteRead",
    "Connection aborted",
    "RemoteDisconnected",
    "ConnectionReset",
)
_SERVER_SAYS = re.compile(rb"Code: (\d+)\. DB::Exception: ([^\r\n]*)")
_AROUND = re.compile(
    r"^.*?DB::Exception: |\s*\(version [^()]*(?:\([^()]*\))?\)|\s*\(for url [^)]*\)", re.DOTALL
)
"""Text that the client and the server put around the reason."""
_END_OF_ANSWER = 65_536
"""An error in the middle of an answer stands within that many bytes of where it breaks off."""


class _Failure(NamedTuple):
    text: str
    code: int | None


@contextlib.contextmanager
def service_errors(address: Address) -> Iterator[None]:
    """Translate any failure in the block into a `ServiceError` without secrets."""
    failures = need("clickhouse_connect.driver.exceptions", extra="clickhouse")
    urllib3 = need("urllib3.exceptions", extra="clickhouse")
    try:
        yield
    except (
        failures.ClickHouseError,
        urllib3.HTTPError,
        http.client.HTTPException,
        pa.ArrowException,
        OSError,
    ) as error:
        is_safe = all(hidden(str(one), address.password) == str(one) for one in _chain(error))
        raise _translated(error, address) from (error if is_safe else None)


def _translated(error: Exception, address: Address) -> TrajkitError:
    failure = _what_failed(error)
    return (
        _tls_error(failure.text, address)
        or _refusal(failure, address)
        or _limit(failure, address)
        or _network_error(failure.text, address)
        or ServiceError(f"ClickHouse at {address.shown} failed: {_reason(failure.text, address, error)}")
    )


def _what_failed(error: Exception) -> _Failure:
    """The message and ClickHouse's own code; for an answer cut short, the server's text at its end."""
    for one in _chain(error):
        if isinstance(one, http.client.IncompleteRead):
            said = _SERVER_SAYS.search(one.partial[-_END_OF_ANSWER:])
            if said is not None:
                return _Failure(said[2].decode(errors="replace"), int(said[1]))
    text = str(error)
    code = getattr(error, "code", None)
    if code is None and (found := _SERVER_SAYS.search(text.encode())) is not None:
        code = int(found[1])
    return _Failure(text, code if isinstance(code, int) else None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, the errors in its arguments, and its causes."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [*one.args, one.__cause__, one.__context__]


def _refusal(failure: _Failure, address: Address) -> ServiceError | None:
    text, code = failure
    if code == _WRONG_USER or "AUTHENTICATION_FAILED" in text:
        return ServiceError(
            f"ClickHouse at {address.shown} refused user {address.user!r}: wrong user or password",
            hint="user and password stand in the URL: http://user:password@host:8123/database",
        )
    if code == _NO_DATABASE or "UNKNOWN_DATABASE" in text:
        return ServiceError(
            f"ClickHouse at {address.place} has no database {address.database!r}",
            hint="the database is the last part of the URL",
        )
    if code == _NO_RIGHT or "ACCESS_DENIED" in text:
        return ServiceError(
            f"ClickHouse at {address.shown} does not let user {address.user!r} read:"
            f" {_reason(text, address)}",
            hint=f"GRANT SELECT ON {address.database}.* TO {address.user}",
        )
    if code in (_READ_ONLY, _NOT_ALLOWED):
        return ServiceError(
            f"ClickHouse at {address.shown} does not let user {address.user!r} have this setting:"
            f" {_reason(text, address)}",
            hint="leave --max-threads, --max-server-memory and --timeout out, or stay within what it may",
        )
    return None


def _limit(failure: _Failure, address: Address) -> LimitReached | None:
    text, code = failure
    if code == _MEMORY or "MEMORY_LIMIT_EXCEEDED" in text:
        return LimitReached(
            f"ClickHouse at {address.shown} stopped a query at its memory limit: {_reason(text, address)}",
            hint="let queries use more with --max-server-memory, or fewer threads with --max-threads,"
            " or ask for less, such as with --since and --until",
        )
    if code in _LIMITS:
        return LimitReached(
            f"ClickHouse at {address.shown} stopped a query at its limit of {_LIMITS[code]}:"
            f" {_reason(text, address)}",
            hint="ask for less, such as with --since and --until, or raise the user's limit on the server",
        )
    return None


def _tls_error(text: str, address: Address) -> TrajkitError | None:
    if "NO_CERTIFICATE_OR_CRL_FOUND" in text or "no certificate or crl found" in text:
        return RequestError("the file that --ca-cert names holds no certificate (PEM)")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        found = re.search(r"certificate verify failed: ([^(]*)", text)
        why = found[1].strip() if found else "unknown issuer"
        return ServiceError(
            f"the certificate of {address.place} is not trusted: {why}",
            hint="--ca-cert FILE trusts who signed it; SSL_CERT_FILE does so for every program",
        )
    if address.is_tls and ("SSLError" in text or "SSL:" in text):
        return ServiceError(
            f"{address.place} does not speak TLS: {_reason(text, address)}",
            hint="without TLS the URL starts with http:// and the port is usually 8123",
        )
    return None


def _network_error(text: str, address: Address) -> ServiceError | None:
    if "Read timed out" in text:
        return ServiceError(
            f"ClickHouse at {address.shown} stopped answering",
            hint="is the server, or the network, overloaded?",
        )
    if any(sign in text for sign in _UNREACHABLE):
        return ServiceError(
            f"ClickHouse at {address.shown} cannot be reached",
            hint="is it running? `trajkit up` starts a local one",
        )
    if any(sign in text for sign in _BROKEN):
        return ServiceError(
            f"ClickHouse at {address.shown} broke off in the middle of an answer",
            hint="the server or the network went away: run it again"
            if address.is_tls
            else "the server or the network went away: run it again; where it speaks TLS, with https://",
        )
    return None


def _reason(text: str, address: Address, error: Exception | None = None) -> str:
    """The first line, short, and without the password in any of the ways in which it may be spelled."""
    text = _AROUND.sub("", hidden(text, address.password))
    lines = text.strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__
