"""Translate every failure of Postgres or its driver into a `ServiceError`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pyarrow as pa

from trajkit._core.lazy import need
from trajkit._core.secrets import hidden
from trajkit.errors import ServiceError
from trajkit.sources.access import LimitReached
from trajkit.sources.tensorzero.connect.postgres.url import Address

_WRONG_USER = ("28P01", "28000")
_NO_DATABASE = "3D000"
_NOT_ALLOWED = "42501"
# https://www.postgresql.org/docs/current/errcodes-appendix.html: cancelled for its time; out of memory, of
# disk, of what a configuration allows
_LIMITS = ("57014", "53200", "53100", "53400")
# what fails in the middle of a stream comes as a text only
_LIMIT_WORDS = ("statement timeout", "out of memory", "No space left", "temp_file_limit")
_UNREACHABLE = (
    "refused",
    "timeout expired",
    "timed out",
    "translate host name",
    "unreachable",
    "No such file",
)


@contextlib.contextmanager
def service_errors(address: Address) -> Iterator[None]:
    """Translate what fails in the block; no password, and no URL that may hold one, is in the message."""
    failures = need("adbc_driver_manager", extra="postgres")
    try:
        yield
    except (failures.Error, pa.ArrowException, OSError) as error:  # Arrow's streams raise OSError
        raise _translated(error, address) from _without_secrets(error, address)


def _translated(error: Exception, address: Address) -> ServiceError:
    text = _shown(error, address)
    code = getattr(error, "sqlstate", None)
    if code in _WRONG_USER or "authentication failed" in text or "no password supplied" in text:
        return ServiceError(
            f"Postgres at {address.shown} refused user {address.user!r}: wrong user or password",
            hint="user and password stand in the URL: postgresql://user:password@host:5432/database",
        )
    if code == _NO_DATABASE or ("database" in text and "does not exist" in text):
        return ServiceError(
            f"Postgres at {address.place} has no database {address.database!r}",
            hint="the database is the last part of the URL",
        )
    if code == _NOT_ALLOWED or "permission denied" in text:
        return ServiceError(
            f"Postgres at {address.shown} does not let user {address.user!r} read: {text}",
            hint="GRANT USAGE ON SCHEMA tensorzero, and SELECT ON ALL TABLES IN SCHEMA tensorzero",
        )
    if code in _LIMITS or any(words in text for words in _LIMIT_WORDS):
        return LimitReached(f"Postgres at {address.shown} gave up a query: {text}")
    if any(sign in text for sign in _UNREACHABLE):
        return ServiceError(f"Postgres at {address.shown} cannot be reached: {text}", hint="is it running?")
    return ServiceError(f"Postgres at {address.shown} failed: {text}")


# text that the driver and libpq put around the message of the server or the network
_WRAPPING = re.compile(
    r"^(?:[\w ]+: )?\[libpq\] (?:Failed to connect: |Execution error \[\w+\]: |Failed to execute [^:]*: )?"
    r'(?:connection to server (?:at|on socket) "[^"]*"(?: \([^)]*\))?(?:, port \d+)? failed: )?'
    r"(?:PQ\w+\(\) failed: )?(?:(?:ERROR|FATAL): +)?"
)
_GUESSES = ("Is the server running", "This probably means", "before or while processing")


def _shown(error: Exception, address: Address) -> str:
    """The server's message on one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = " ".join(line for line in lines if line and not line.startswith(_GUESSES))
    return _WRAPPING.sub("", hidden(said, address.password))[:500] or type(error).__name__


def _without_secrets(error: Exception, address: Address) -> Exception | None:
    """The cause, unless its text repeats the password."""
    return error if hidden(str(error), address.password) == str(error) else None
