"""A request that is not answered, as OpenAI words it."""

from __future__ import annotations

from typing import Any

from trajkit.errors import RequestError, TrajkitError
from trajkit.models.generation.ask import AskError

_FIELDS = {
    "json_schema": "response_format",
    "max_new_tokens": "max_completion_tokens",
    "n_logprobs": "top_logprobs",
}
"""Fields of an ask that a request calls otherwise."""


class Refusal(RequestError):
    """A request that is not answered.

    Args:
        message: What is wrong with it.
        param: The part of the request that is wrong; None when it is the whole.
        status: HTTP status.
        kind: OpenAI's type of error.
        code: OpenAI's code of it, where it has one.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.param, self.status, self.kind, self.code = param, status, kind, code

    @property
    def body(self) -> dict[str, Any]:
        """What the client is told."""
        said = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": said}


def refusal_of(error: TrajkitError) -> Refusal:
    """An error of the library in the words of a server."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, AskError):
        is_stranger = error.param == "model"
        param = _FIELDS.get(error.param or "", error.param)
        return Refusal(
            str(error),
            param=param,
            status=404 if is_stranger else 400,
            code="model_not_found" if is_stranger else error.code,
        )
    if isinstance(error, RequestError):  # what a chat template says
        return Refusal(str(error), param="messages")
    return Refusal(str(error), status=500, kind="server_error")
