"""Get and parse a service's answers: bounded, without the key, refusals as errors, hints for failed jobs."""

from __future__ import annotations

import functools
import importlib
import json
import math
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, TypeAdapter

from trajkit._core.secrets import hidden
from trajkit._core.times import in_utc
from trajkit.errors import RequestError, ServiceError
from trajkit.schema.base import MOST

_MOMENT: TypeAdapter[datetime] = TypeAdapter(datetime)
# the patterns match OpenAI's messages, and those of services with the same interface
_LOOK = "`trajkit validate {rows} --target {rules}` checks the same rows; report it if that finds nothing"


class Said(BaseModel):
    """An answer of a service: unknown fields are ignored, required ones are checked."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Refused(ServiceError):
    """The service refused the request.

    Args:
        message: What happened.
        said: The service's message.
        status: HTTP status.
        body: The whole answer.
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
    """An HTTP answer of a service."""

    status: int
    """HTTP status."""
    headers: Mapping[str, str]
    """Headers; names are case-insensitive."""
    body: dict[str, Any]
    """The JSON object; empty if there was none."""


def object_of(content: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one when the bytes are not one."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def words_of(body: Mapping[str, Any]) -> str:
    """Return the message of a refusal, from any of its usual places."""
    error = body.get("error")
    for place in (error if isinstance(error, Mapping) else {}, body):
        for name in ("message", "detail", "error"):
            if isinstance(place.get(name), str) and place[name]:
                return str(place[name])
    return json.dumps(dict(body), ensure_ascii=False)[:300] if body else ""


def moment(said: str | None) -> datetime | None:
    """Parse a time; None if the text is not one. Without a zone it is UTC."""
    try:
        return in_utc(_MOMENT.validate_python(said))
    except ValueError:
        return None


def moment_of(seconds: float | None) -> datetime | None:
    """Convert seconds since 1970 to a time; None if that is not possible."""
    try:
        return None if not seconds else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


class Unreachable(ServiceError):
    """The network failed, or the service itself; a retry may succeed.

    Args:
        message: What happened.
        hint: The way out.
        is_undone: Whether the service said that it did not carry out the request.
        answer: An answer that cannot be parsed; the request may have been carried out.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, is_undone: bool = False, answer: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.is_undone, self.answer = is_undone, answer


class Uncertain(RequestError):
    """A job was requested, the service does not list it, and creating it again may cost twice."""


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
        "a byte order mark before the first line causes this: `trajkit validate {rows} --target {rules}"
        " --fix` shows which one the service requires",
    ),
    _Failure(
        None,
        r"invalid token",
        "a text contains one of the model's special tokens: `trajkit validate {rows} --target {rules}` finds"
        " every such row",
    ),
    _Failure(
        None,
        r"moderation|refusals|safety|usage polic",
        "the service's safety checks refused the tuned model or the rows: read the rows with"
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
    """Return a hint for a failure; None if its message is unknown.

    Args:
        code: The service's error code.
        text: The service's message.
        rows: The file that was uploaded.
        rules: Name of the rules that the file was checked by.
    """
    for failure in _FAILURES:  # messages first: one code has several causes
        if re.search(failure.words, text, re.IGNORECASE):
            return failure.hint.format(rows=rows, rules=rules)
    for failure in _FAILURES:
        if code is not None and code == failure.code:
            return failure.hint.format(rows=rows, rules=rules)
    return None


MOST_BYTES, LONGEST_S = 32 << 20, 600.0
"""Maximum bytes and seconds per answer."""
_LONGEST_TEXT, _DEEPEST = 8_000, 24
"""Maximum characters per text, and levels of nesting. A signed address has up to 3,000 characters."""


def checked_address(url: str) -> str:
    """Check that a URL can be the address of an API, and holds no password.

    Raises:
        RequestError: It cannot, or holds one.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RequestError(f"{url!r} is not the address of an API", hint="such as https://api.openai.com/v1")
    if "@" in parts.netloc:
        raise RequestError(
            f"the address of {parts.hostname} holds a password, and addresses are recorded",
            hint="set keys in the environment only",
        )
    return url


def client(kind: type[Any], key: SecretStr | None, **options: Any) -> Any:
    """Return an httpx client that follows no redirects, and reads and cleans whole answers.

    Args:
        kind: The client's class, which differs between packages.
        key: The key to remove from answers.
        options: Options of the class.
    """

    class Client(kind):  # type: ignore[misc]
        def send(self, request: Any, *, stream: bool = False, **more: Any) -> Any:
            answer = super().send(request, stream=True, **more)
            try:
                content = _read(answer)
            finally:
                answer.close()
            kept = [(name, value) for name, value in answer.headers.multi_items() if name not in _OF_BODY]
            return type(answer)(
                answer.status_code,
                headers=kept,
                content=harmless(content, key),
                request=answer.request,
                extensions=answer.extensions,
            )

    library = next(base.__module__ for base in kind.__mro__ if base.__name__ == "Client")
    return Client(follow_redirects=False, verify=_certificates(library), **options)


@functools.cache
def _certificates(library: str) -> ssl.SSLContext:
    """Return the certificates that a library trusts, cached because reading them is slow."""
    trusted: ssl.SSLContext = importlib.import_module(library).create_ssl_context()
    return trusted


def pauses() -> Iterator[bool]:
    """Pause between the repetitions of a request, longer each time.

    Yields:
        Whether more time is left; False for the last repetition.
    """
    deadline, pause_s = time.monotonic() + LONGEST_S, 0.2
    while time.monotonic() < deadline:
        yield True
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 10)
    yield False


_OF_BODY = ("content-encoding", "content-length", "transfer-encoding")


def _read(answer: Any) -> bytes:
    content, deadline = bytearray(), time.monotonic() + LONGEST_S
    for piece in answer.iter_bytes():
        content += piece
        if len(content) > MOST_BYTES or time.monotonic() > deadline:
            limit = f"{MOST_BYTES >> 20} MiB" if len(content) > MOST_BYTES else f"{LONGEST_S:g} s"
            raise Unreachable(
                f"{answer.request.url.host} sends an answer of more than {limit}",
                hint="is that the address of its API?",
            )
    return bytes(content)


def harmless(content: bytes, *secrets: SecretStr | str | None) -> bytes:
    """Remove secrets from an answer, and from JSON also depth, long texts, huge numbers and NaN.

    Args:
        content: The answer. JSON that is too deep to parse becomes a JSON text of its beginning.
        secrets: The secrets to remove.
    """
    text = content.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except ValueError:
        masked = hidden(text, *secrets)
        return content if masked == text else masked.encode()
    except RecursionError:
        value = text
    return hidden(json.dumps(_harmless(value, secrets), ensure_ascii=False), *secrets).encode()


def _harmless(value: Any, secrets: tuple[SecretStr | str | None, ...], depth: int = 0) -> Any:
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT:  # hide secrets first, so that no half of one remains at the end
            value = hidden(value, *secrets)[:_LONGEST_TEXT]
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) <= MOST else None
    if isinstance(value, dict | list) and depth == _DEEPEST:
        return None
    if isinstance(value, dict):
        return {_harmless(name, secrets): _harmless(each, secrets, depth + 1) for name, each in value.items()}
    return [_harmless(each, secrets, depth + 1) for each in value] if isinstance(value, list) else value
