"""Convert failures of the Hub and of the network to trajkit's errors, without the token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trajkit._core.lazy import need
from trajkit._core.secrets import HIDDEN, hidden
from trajkit.errors import RequestError, ServiceError

EXTRA = "hub"
"""The extra that installs `huggingface_hub`."""

CARD_HINT = "see --license, --language and --pretty-name"
"""Hint for metadata that the Hub refuses."""

_SECONDS = re.compile(r"\bt\s*=\s*(\d+)")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{4,}|Bearer\s+\S+")
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _STALE, _TOO_MANY = 401, 403, 404, 409, 412, 429
_HINTS = {
    _UNAUTHORIZED: "the token is expired or invalid: make one in the Hub's settings and set HF_TOKEN",
    _FORBIDDEN: "the token may not write there: it needs the role write for this owner",
    _NOT_FOUND: "is the name right, and may this token see it?",
    _TOO_MANY: "the Hub limits requests: try again in some minutes; what was sent is kept",
}


class HubFault(ServiceError):
    """The Hub refused a request, or did not answer.

    Args:
        message: The failure, in words.
        status: The HTTP status; None where there was no answer.
        wait_s: Seconds to wait before the next request; None when the Hub gave none.
        hint: The way out.
    """

    def __init__(
        self, message: str, *, status: int | None, wait_s: float | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.wait_s = wait_s

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status >= 500 or self.status == _TOO_MANY

    @property
    def is_conflict(self) -> bool:
        """Whether another commit came in between."""
        return self.status in (_CONFLICT, _STALE)

    @property
    def is_absent(self) -> bool:
        """Whether the repository, revision or file does not exist."""
        return self.status == _NOT_FOUND


@contextmanager
def asking(what: str, *, token: str | None) -> Iterator[None]:
    """Convert failures of a block that calls the Hub.

    Args:
        what: The request in words, such as `create me/data`.
        token: The token to remove from all messages.

    Raises:
        HubFault: The Hub refused or did not answer.
        RequestError: The card's metadata is refused, or a name is invalid.
    """
    errors = need("huggingface_hub.errors", extra=EXTRA)
    httpx = need("httpx2", extra=EXTRA)
    session = need("huggingface_hub", extra=EXTRA).get_session()
    if _refuse_redirect not in (hooks := session.event_hooks)["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], _refuse_redirect]}
    try:
        yield
    except errors.HFValidationError as error:
        raise RequestError(f"{what}: {_clean(str(error), token)}", hint="such as org/name") from None
    except (httpx.HTTPError, RuntimeError, ValueError, OSError) as error:
        raise _fault(what, error, errors, httpx, token) from None


def _refuse_redirect(answer: Any) -> None:
    """Refuse to send data to another host. Reads may be redirected."""
    request, onward = answer.request, answer.headers.get("location", "")
    if request.method not in ("GET", "HEAD") and answer.has_redirect_location:
        goal = request.url.join(onward)
        if (goal.scheme, goal.netloc) != (request.url.scheme, request.url.netloc):
            raise ServiceError(
                f"{request.url.host} redirects {request.method} to {goal.host}: data is sent to no other host"
            )


def _fault(what: str, error: BaseException, errors: Any, httpx: Any, token: str | None) -> Exception:
    if isinstance(error, ValueError) and "metadata" in str(error):
        return RequestError(f"the Hub refuses the card: {_clean(str(error), token)}", hint=CARD_HINT)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, httpx.HTTPError):
        cause = cause.__cause__
    if cause is None:
        return HubFault(f"{what}: {_clean(str(error), token)}", status=None, hint=_AGAIN)
    response = getattr(cause, "response", None) if isinstance(cause, errors.HfHubHTTPError) else None
    if response is None:
        return HubFault(f"{what}: the Hub does not answer ({type(cause).__name__})", status=None, hint=_AGAIN)
    status = int(response.status_code)
    said = getattr(cause, "server_message", None) or response.headers.get("X-Error-Message") or ""
    text = f"{what}: the Hub says {status}{': ' + _clean(said, token) if said else ''}"
    hint = _HINTS.get(status, _AGAIN if status >= 500 else None)
    return HubFault(text, status=status, wait_s=_wait(response.headers), hint=hint)


_AGAIN = "run the same command again: what was sent is not sent twice"


def _wait(headers: Any) -> float | None:
    """Return the seconds to wait, from `Retry-After` or `RateLimit`."""
    if (after := headers.get("Retry-After", "")).isdigit():
        return float(after)
    found = _SECONDS.search(headers.get("RateLimit", ""))
    return float(found[1]) if found else None


def _clean(text: str, token: str | None) -> str:
    """Put a text on one line and remove everything that looks like a token."""
    return _TOKEN.sub(HIDDEN, " ".join(hidden(text, token).split()))[:300]
