"""What a service's API answers: JSON with types, refusals as errors, and the way out of a failed job."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trajkit.errors import RequestError, ServiceError

_MOMENT: TypeAdapter[datetime] = TypeAdapter(datetime)
# the words are OpenAI's, and those of services that took its interface over
_LOOK = "`trajkit validate {rows} --target {rules}` looks at the same rows; report it if that finds nothing"


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


class _Failure(NamedTuple):
    code: str | None
    words: str
    hint: str


_FAILURES = (
    _Failure(
        "training_not_available",
        r"winding down the fine-tuning|training_not_available",
        "train on this machine with `trajkit sft local`, or at another service that takes the same rows:"
        " `trajkit sft openai --profile azure`, `trajkit sft together`, `trajkit sft fireworks`",
    ),
    _Failure(
        "invalid_n_examples",
        r"must have at least \d+ example",
        "export more episodes, or use --unit step and --val-fraction 0, which leave more rows to learn",
    ),
    _Failure(
        None,
        r"starts with|where every line is a JSON",
        "a byte order mark before the first line does that: `trajkit validate {rows} --target {rules} --fix`"
        " says which the service wants",
    ),
    _Failure(
        None,
        r"invalid token",
        "a text holds one of the model's special tokens: `trajkit validate {rows} --target {rules}` finds"
        " every such row",
    ),
    _Failure(
        None,
        r"moderation|refusals|safety|usage polic",
        "the service's safety checks refused the tuned model or the rows: look at what the rows say with"
        " `trajkit show`, and leave such episodes out with `trajkit select`",
    ),
    _Failure(
        "exceeded_quota",
        r"quota|billing|insufficient (?:funds|credit)|hard limit",
        "the account has no credit left, or too many jobs at once: see its billing page, then start again",
    ),
    _Failure(
        "invalid_file_format",
        r"invalid file format|missing key|cannot be parsed|file format error|extra \"",
        _LOOK,
    ),
    _Failure(
        "invalid_training_file",
        r"invalid training file",
        _LOOK,
    ),
)


def way_out(code: str | None, text: str, *, rows: Path, rules: str) -> str | None:
    """What a user can do about a failure; None where the words are not known.

    Args:
        code: The service's name for it.
        text: Its words.
        rows: The file that was uploaded.
        rules: Whose rules it was checked by.
    """
    for failure in _FAILURES:  # words first: one code covers several causes
        if re.search(failure.words, text, re.IGNORECASE):
            return failure.hint.format(rows=rows, rules=rules)
    for failure in _FAILURES:
        if code is not None and code == failure.code:
            return failure.hint.format(rows=rows, rules=rules)
    return None
