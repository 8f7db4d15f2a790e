"""How a service's refusals and silences travel."""

from __future__ import annotations

from trajkit.errors import RequestError, ServiceError


class Unreachable(ServiceError):
    """The network or the service's own machines are at fault: trying again may help."""


class MissingKey(RequestError):
    """The environment has no key for the service; the message names the variable."""
