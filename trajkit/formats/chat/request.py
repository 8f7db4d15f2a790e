"""Requests of OpenAI's chat API as servers on this machine read them, and how they refuse one."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trajkit.errors import RequestError

Request = TypeVar("Request", bound="Wire")


class Refusal(RequestError):
    """A request that is refused.

    Args:
        message: The problem.
        param: The part of the request with the problem; None when it is the whole.
        status: HTTP status.
        kind: OpenAI's error type.
        code: OpenAI's error code, if it has one.
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
        """The body of the answer."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


class Wire(BaseModel):
    """JSON of a client: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Part(Wire):
    """A part of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None


class _Schema(Wire):
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class ResponseFormat(Wire):
    """The wanted form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


def request_of(kind: type[Request], body: object) -> Request:
    """Read a request body.

    Args:
        kind: The fields that are read.
        body: JSON, in which half of a surrogate pair is an error, or what was read from it.

    Raises:
        Refusal: It is not JSON, or not such a request.
    """
    try:
        return kind.model_validate_json(body) if isinstance(body, bytes) else kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refusal(f"{where or 'body'}: {first['msg']}", param=where or None) from error
