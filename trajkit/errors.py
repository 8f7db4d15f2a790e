"""All errors that trajkit raises on purpose: one base, a few subclasses, each with an exit code.

The library raises a `TrajkitError` whose message says what was wrong, with the value,
and whose `hint` says what to do. The command line prints both on one or two lines and exits with
`exit_code`; a traceback appears only under `--debug`. Anything else that escapes is a bug in trajkit.
"""

from __future__ import annotations


class TrajkitError(Exception):
    """Base of every error that trajkit raises on purpose.

    Args:
        message: What was wrong, with the value, the file, the line or the id. Never a secret.
        hint: What to do about it; None when the message already says so.
        result: A result that does not meet the requirement; the command line prints it before the message.
    """

    exit_code: int = 1

    def __init__(self, message: str, *, hint: str | None = None, result: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.result = result

    def __str__(self) -> str:
        """Return the message, and the hint in brackets when there is one."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


class DataError(TrajkitError):
    """A value in the data is invalid."""


class StoreError(TrajkitError):
    """A store is missing, damaged, of another version, or in the way."""


class NothingMatched(TrajkitError):
    """The request is valid, but no episode matches it."""


class RolloutError(TrajkitError):
    """Episodes could not be played to their end."""


class TrainingError(TrajkitError):
    """A model could not be trained to its end."""


class StackError(TrajkitError):
    """A local service did not start, or is not the one that was started."""


class RequestError(TrajkitError):
    """The request itself is wrong: nothing was tried."""

    exit_code = 2


class ConfigError(RequestError):
    """A configuration file or a setting cannot be used."""


class QueryError(RequestError):
    """A query, a filter or a column name is not valid here."""


class MissingExtra(TrajkitError):
    """An optional package is not installed."""

    exit_code = 3


class ServiceError(TrajkitError):
    """A database, a gateway or a hosted service refused, or could not be reached."""

    exit_code = 4
