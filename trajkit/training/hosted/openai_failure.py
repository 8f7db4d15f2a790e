"""What a refusal or a silence of an API that the `openai` package speaks to means, as our errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from trajkit._core.secrets import hidden
from trajkit.errors import ServiceError
from trajkit.rollouts.endpoint_fault import fault_of_status, said_in
from trajkit.rollouts.faults import FaultKind, shown
from trajkit.training.hosted.failure import Unreachable
from trajkit.training.hosted.way_out import way_out

if TYPE_CHECKING:
    from openai import APIStatusError

_PASSING = (FaultKind.RATE_LIMIT, FaultKind.TIMEOUT, FaultKind.SERVER)
_BUSY = 503
_LONGEST_KEPT = 20_000


class Failures:
    """Turns what the client raises into our errors.

    Args:
        where: The address, for messages.
        key_variable: Where the key is from, for hints.
        key: Blotted out of whatever the service says.
        rules: Whose rules rows are checked by, for hints.
    """

    def __init__(self, where: str, key_variable: str, key: SecretStr | None, rules: str) -> None:
        self._where, self._key_variable, self._key, self._rules = where, key_variable, key, rules

    def refusal(self, error: APIStatusError, what: str) -> ServiceError:
        """The error behind an HTTP status that is no success.

        Args:
            error: Of the client.
            what: What was tried, such as `creating the job`.
        """
        status, code = error.status_code, error.code
        said = self.safe(said_in(error.body) or error.message)
        message = f"{what}: {self._where} answered {status}: {said}"
        fault = fault_of_status(status, message, code=code, headers=error.response.headers)
        if fault.kind in _PASSING:
            # a 503 in the API's own words is a refusal; one of a proxy may come after the work was done
            is_undone = status < 500 or (status == _BUSY and isinstance(error.body, Mapping))
            return Unreachable(message, hint="it may pass: try again later", is_undone=is_undone)
        return ServiceError(message, hint=self._hint(status, code, said))

    def silence(self, error: Exception, what: str) -> Unreachable:
        """The error behind an answer that did not come."""
        said = self.safe(str(error.__cause__ or error)) or type(error).__name__
        return Unreachable(
            f"{what}: {self._where} cannot be reached: {said}", hint="check the network and the address"
        )

    def nonsense(self, what: str, said: str) -> Unreachable:
        """The error behind an answer that is none of the API's: what was asked for may be done."""
        return Unreachable(
            f"{what}: {self._where} answered what is none of the API's answers: {self.safe(said)}",
            hint="is the address right, up to /v1?",
            answer=said[:_LONGEST_KEPT],
        )

    def safe(self, text: str) -> str:
        """What a service said, short, without the key that it may repeat."""
        return shown(hidden(text, self._key))

    def _hint(self, status: int, code: str | None, said: str) -> str | None:
        rows = Path("runs/JOB/training.jsonl")
        if (known := way_out(code, said, rows=rows, rules=self._rules)) is not None:
            return known
        if 300 <= status < 400:
            return f"{self._where} sends elsewhere, which is not followed: name the address itself"
        if status == 401:
            return f"{self._key_variable} holds the key: is it right, and of this service?"
        if status == 403:
            return f"the key in {self._key_variable} may not do this: it needs models, files and fine-tuning"
        if status == 404:
            return "is the address right, up to /v1, and does the service have fine-tuning?"
        return None
