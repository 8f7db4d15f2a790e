"""How a service's refusals and silences travel."""

from __future__ import annotations

from trajkit.errors import RequestError, ServiceError


class Unreachable(ServiceError):
    """The network or the service's own machines are at fault: trying again may help.

    Args:
        message: What happened.
        hint: The way out.
        is_undone: Whether the service itself said that it did not do what was asked for.
        answer: What it answered, where that cannot be understood: what was asked for may be done.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, is_undone: bool = False, answer: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_undone, self.answer = is_undone, answer


class Uncertain(RequestError):
    """A job was asked for, its service does not list it, and creating it again may be paid for twice."""


class MissingKey(RequestError):
    """The environment has no key for the service; the message names the variable."""
