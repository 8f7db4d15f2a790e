"""What a service's API answers: its statuses, its words, and its JSON with types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trajkit.errors import ServiceError

_MOMENT: TypeAdapter[datetime] = TypeAdapter(datetime)


class Said(BaseModel):
    """What a service answers: fields that we do not know are passed over, those that we need are checked."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Refused(ServiceError):
    """The service answered, and not with what it was asked for.

    Args:
        message: What happened.
        said: The service's own words.
        status: The status of HTTP.
        body: Its whole answer.
        hint: The way out.
    """

    def __init__(
        self, message: str, *, said: str, status: int, body: Mapping[str, Any], hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.said = said
        self.status = status
        self.body = body


class Answer(NamedTuple):
    """What a service answered."""

    status: int
    """The status of HTTP."""
    headers: Mapping[str, str]
    """Its headers, found in any case of letters."""
    body: dict[str, Any]
    """The JSON object; empty where there was none."""


def object_of(content: bytes) -> dict[str, Any]:
    """The JSON object that these bytes are; an empty one when they are none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def words_of(body: Mapping[str, Any]) -> str:
    """The words of a refusal, wherever in it they are."""
    error = body.get("error")
    for place in (error if isinstance(error, Mapping) else {}, body):
        for name in ("message", "detail", "error"):
            if isinstance(place.get(name), str) and place[name]:
                return str(place[name])
    return json.dumps(dict(body), ensure_ascii=False)[:300] if body else ""


def moment(said: str | None) -> datetime | None:
    """When something happened; None where the words are no time. Without a zone it is UTC."""
    try:
        found = _MOMENT.validate_python(said)
    except ValidationError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def moment_of(seconds: float | None) -> datetime | None:
    """When something happened, in seconds since 1970; None where that is no time."""
    try:
        return None if not seconds else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
