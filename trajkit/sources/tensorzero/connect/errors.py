"""Translate every failure of a database, its driver or the network into one error without secrets."""

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
from trajkit.sources.tensorzero.connect.url import Address

CUT_SHORT = "an answer ended before it was complete"
"""The message when only the end of an answer is missing."""


class _Signs(NamedTuple):
    """The codes and words by which a database reports errors."""

    name: str
    example: str
    """A URL with a user and a password."""
    grant: str
    """The hint for a user who may not read; `{0}` is the address."""
    wrong_user: tuple[object, ...]
    no_database: tuple[object, ...]
    may_not_read: tuple[object, ...]
    unreachable: tuple[str, ...]


_CLICKHOUSE = _Signs(
    "ClickHouse",
    "http://user:password@host:8123/database",
    "GRANT SELECT ON {0.database}.* TO {0.user}",
    wrong_user=(516, "AUTHENTICATION_FAILED"),
    no_database=(81, "UNKNOWN_DATABASE"),
    may_not_read=(497, "ACCESS_DENIED"),
    unreachable=("Connection refused", "Max retries", "timed out", "resolve", "unreachable", "No route"),
)
# https://www.postgresql.org/docs/current/errcodes-appendix.html; errors in a stream come as text only
_POSTGRES = _Signs(
    "Postgres",
    "postgresql://user:password@host:5432/database",
    "GRANT USAGE ON SCHEMA tensorzero, and SELECT ON ALL TABLES IN SCHEMA tensorzero",
    wrong_user=("28P01", "28000", "authentication failed", "no password supplied"),
    no_database=("3D000", re.compile("database.*does not exist")),
    may_not_read=("42501", "permission denied"),
    unreachable=(
        *("refused", "timeout expired", "timed out", "translate host name", "unreachable"),
        "No such file",
    ),
)
# cancelled for its time; out of memory, of disk, of what a configuration allows
_POSTGRES_LIMITS = (
    *("57014", "53200", "53100", "53400"),
    *("statement timeout", "out of memory", "No space left", "temp_file_limit"),
)
_MEMORY = (241, "MEMORY_LIMIT_EXCEEDED")
_LIMITS = {159: "time", 160: "time", 158: "rows", 307: "bytes", 396: "rows"}
_SETTING_REFUSED = (164, 452)
_BROKEN = (
    CUT_SHORT,
    "Connection broken",
    "IncompleteRead",
    "Connection aborted",
    "RemoteDisconnected",
    "ConnectionReset",
)
_SERVER_SAYS = re.compile(rb"Code: (\d+)\. DB::Exception: ([^\r\n]*)")
_END_OF_ANSWER = 65_536
"""An error within an answer is in this many bytes before its end."""

# text that the drivers and the servers put around the reason
_AROUND = re.compile(
    r"^.*?DB::Exception: |\s*\(version [^()]*(?:\([^()]*\))?\)|\s*\(for url [^)]*\)", re.DOTALL
)
_LIBPQ = re.compile(
    r"^(?:[\w ]+: )?\[libpq\] (?:Failed to connect: |Execution error \[\w+\]: |Failed to execute [^:]*: )?"
    r'(?:connection to server (?:at|on socket) "[^"]*"(?: \([^)]*\))?(?:, port \d+)? failed: )?'
    r"(?:PQ\w+\(\) failed: )?(?:(?:ERROR|FATAL): +)?"
)
_GUESSES = ("Is the server running", "This probably means", "before or while processing")


@contextlib.contextmanager
def service_errors(address: Address) -> Iterator[None]:
    """Translate errors in the block; the message has no password, and no URL that may contain one."""
    failures: tuple[type[Exception], ...] = (pa.ArrowException, OSError)  # Arrow's streams raise OSError
    if address.is_postgres:
        failures += (need("adbc_driver_manager", extra="postgres").Error,)
    else:
        driver = need("clickhouse_connect.driver.exceptions", extra="clickhouse")
        urllib3 = need("urllib3.exceptions", extra="clickhouse")
        failures += (driver.ClickHouseError, urllib3.HTTPError, http.client.HTTPException)
    try:
        yield
    except failures as error:
        is_safe = all(hidden(str(one), address.password) == str(one) for one in _chain(error))
        raise _translated(error, address) from (error if is_safe else None)


class _Failure(NamedTuple):
    text: str
    """The original text."""
    code: object
    reason: str
    """The same in short, on one line, without the password in any spelling."""

    def shows(self, signs: tuple[object, ...]) -> bool:
        """Whether its code or its text is one of these."""
        return any(
            sign == self.code
            or (isinstance(sign, str) and sign in self.text)
            or (isinstance(sign, re.Pattern) and sign.search(self.text) is not None)
            for sign in signs
        )


def _translated(error: Exception, address: Address) -> TrajkitError:
    if address.is_postgres:
        failure, signs = _of_postgres(error, address), _POSTGRES
        found = _refusal(failure, signs, address)
        if found is None and failure.shows(_POSTGRES_LIMITS):
            found = LimitReached(f"Postgres at {address.shown} cancelled a query: {failure.reason}")
        if found is None and failure.shows(signs.unreachable):
            found = ServiceError(
                f"Postgres at {address.shown} cannot be reached: {failure.reason}", hint="is it running?"
            )
    else:
        failure, signs = _of_clickhouse(error, address), _CLICKHOUSE
        found = (
            _tls_error(failure, address)
            or _refusal(failure, signs, address)
            or _limit(failure, address)
            or _network_error(failure, address)
        )
    return found or ServiceError(f"{signs.name} at {address.shown} failed: {failure.reason}")


def _refusal(failure: _Failure, signs: _Signs, address: Address) -> TrajkitError | None:
    user = f"user {address.user!r}"
    if failure.shows(signs.wrong_user):
        return ServiceError(
            f"{signs.name} at {address.shown} refused {user}: wrong user or password",
            hint=f"user and password are part of the URL: {signs.example}",
        )
    if failure.shows(signs.no_database):
        return ServiceError(
            f"{signs.name} at {address.place} has no database {address.database!r}",
            hint="the database is the last part of the URL",
        )
    if failure.shows(signs.may_not_read):
        return ServiceError(
            f"{signs.name} at {address.shown} does not let {user} read: {failure.reason}",
            hint=signs.grant.format(address),
        )
    return None


def _of_postgres(error: Exception, address: Address) -> _Failure:
    lines = [line.strip() for line in hidden(str(error), address.password).splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith(_GUESSES))
    reason = _LIBPQ.sub("", text)[:500] or type(error).__name__
    return _Failure(reason, getattr(error, "sqlstate", None), reason)


def _of_clickhouse(error: Exception, address: Address) -> _Failure:
    """The message and ClickHouse's own code; for an answer cut short, the server's text at its end."""
    text, code = str(error), getattr(error, "code", None)
    said = None
    for one in _chain(error):
        if isinstance(one, http.client.IncompleteRead):
            said = said or _SERVER_SAYS.search(one.partial[-_END_OF_ANSWER:])
    if said is not None:
        text = said[2].decode(errors="replace")
    elif code is None:
        said = _SERVER_SAYS.search(text.encode())
    lines = _AROUND.sub("", hidden(text, address.password)).strip().splitlines()
    reason = lines[0][:500] if lines else type(error).__name__
    return _Failure(text, int(said[1]) if said is not None else code, reason)


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


# -- ClickHouse alone ----------------------------------------------------------------------------------------


def _limit(failure: _Failure, address: Address) -> TrajkitError | None:
    if failure.shows(_SETTING_REFUSED):
        return ServiceError(
            f"ClickHouse at {address.shown} does not let user {address.user!r} change this setting:"
            f" {failure.reason}",
            hint="leave out --max-threads, --max-server-memory and --timeout, or keep to the user's limits",
        )
    if failure.shows(_MEMORY):
        return LimitReached(
            f"ClickHouse at {address.shown} stopped a query at its memory limit: {failure.reason}",
            hint="raise the limit with --max-server-memory, use fewer threads with --max-threads,"
            " or read less, such as with --since and --until",
        )
    if isinstance(failure.code, int) and failure.code in _LIMITS:
        return LimitReached(
            f"ClickHouse at {address.shown} stopped a query at its limit of {_LIMITS[failure.code]}:"
            f" {failure.reason}",
            hint="read less, such as with --since and --until, or raise the user's limit on the server",
        )
    return None


def _tls_error(failure: _Failure, address: Address) -> TrajkitError | None:
    text = failure.text
    if "NO_CERTIFICATE_OR_CRL_FOUND" in text or "no certificate or crl found" in text:
        return RequestError("the file that --ca-cert names holds no certificate (PEM)")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        found = re.search(r"certificate verify failed: ([^(]*)", text)
        why = found[1].strip() if found else "unknown issuer"
        return ServiceError(
            f"the certificate of {address.place} is not trusted: {why}",
            hint="--ca-cert FILE trusts its signer; SSL_CERT_FILE does so for every program",
        )
    if address.is_tls and ("SSLError" in text or "SSL:" in text):
        return ServiceError(
            f"{address.place} does not speak TLS: {failure.reason}",
            hint="without TLS the URL starts with http:// and the port is usually 8123",
        )
    return None


def _network_error(failure: _Failure, address: Address) -> ServiceError | None:
    if "Read timed out" in failure.text:
        return ServiceError(
            f"ClickHouse at {address.shown} stopped answering",
            hint="is the server, or the network, overloaded?",
        )
    if failure.shows(_CLICKHOUSE.unreachable):
        return ServiceError(
            f"ClickHouse at {address.shown} cannot be reached",
            hint="is it running? `trajkit up` starts a local one",
        )
    if failure.shows(_BROKEN):
        return ServiceError(
            f"ClickHouse at {address.shown} broke off in the middle of an answer",
            hint="the server or the network failed: run it again"
            if address.is_tls
            else "the server or the network failed: run it again; if the server uses TLS, with https://",
        )
    return None
