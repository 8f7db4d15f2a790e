"""Read JSON from the API of a logging server: requests without redirects, and clear error messages."""

from __future__ import annotations

import base64
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from trajkit._core.lazy import need
from trajkit._core.secrets import hidden
from trajkit._core.settings import secret_from_environment
from trajkit.errors import RequestError, ServiceError

if TYPE_CHECKING:
    import httpx2

_TIMEOUT_S = 120.0
_LONGEST_WAIT_S = 300
_BUSY = (429, 503)
"""Status codes for too many requests, and for temporary failures."""


class Web:
    """The API of one server.

    Args:
        name: Name of the system for messages.
        place: Its URL. A user and a password in it are sent as such; query and fragment are left out.
        headers: Sent with each request, such as a key.
        key_variable: Name of the environment variable that a key belongs in, for a hint.
    """

    def __init__(self, name: str, place: str, headers: Mapping[str, str], *, key_variable: str) -> None:
        parts = urlsplit(place)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(
                f"{hidden(place)!r} is not the address of {name}", hint="such as http://localhost:5000"
            )
        own, _, host = parts.netloc.rpartition("@")
        self.name = name
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/json", **headers}
        if own:
            self._headers["Authorization"] = basic(*(unquote(one) for one in own.partition(":")[::2]))
        self._key_variable = key_variable
        self._http: httpx2.Client | None = None

    def __enter__(self) -> Self:
        httpx2 = need("httpx2", extra="hosted")
        self._http = httpx2.Client(headers=self._headers, timeout=_TIMEOUT_S, follow_redirects=False)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._http is not None
        self._http.close()

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a GET; a list in the query repeats its name for each value."""
        return self._asked("GET", path, params=query or {})

    def has(self, path: str, query: Mapping[str, Any], *, absent: Collection[int]) -> bool:
        """Whether the server answers a GET with an HTTP status other than these."""
        with self._reached():
            status = self._answer("GET", path, params=query).status_code
        return status not in absent

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a POST of a JSON object.

        Raises:
            ServiceError: It cannot be reached, refuses, or answers with something other than a JSON object.
        """
        return self._asked("POST", path, json=body)

    def _asked(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        assert self._http is not None
        with self._reached():
            answer = self._answer(method, path, **options)
        if not 200 <= answer.status_code < 300:
            said = " ".join(hidden(answer.text[:300]).split()) or answer.reason_phrase
            hint = None
            if answer.status_code in (401, 403):
                hint = f"is the key in {self._key_variable} right, and allowed to read this?"
            elif answer.status_code in (404, 405):
                hint = f"is this {self.name}, of a version that trajkit supports?"
            elif 300 <= answer.status_code < 400:
                hint = "the server redirects, which is not followed: use the final address"
            raise ServiceError(
                f"{self.name} at {self.url} refused {path}: {said} (HTTP {answer.status_code})", hint=hint
            )
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ServiceError(
                f"{self.name} at {self.url} answered {path} with something other than a JSON object",
                hint=f"is this the address of {self.name}?",
            )
        return body

    def _answer(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send a request, and repeat it if the server reports too many requests."""
        assert self._http is not None
        for wait_s in (1, 2, 4, 8, 16, 32):
            answer = self._http.request(method, self.url + path, **options)
            if answer.status_code not in _BUSY:
                return answer
            after = answer.headers.get("Retry-After", "")
            time.sleep(min(int(after), _LONGEST_WAIT_S) if after.isdecimal() else wait_s)
        return self._http.request(method, self.url + path, **options)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        httpx2 = need("httpx2", extra="hosted")
        try:
            yield
        except httpx2.TransportError as error:
            raise ServiceError(
                f"{self.name} at {self.url} cannot be reached: {hidden(str(error)) or type(error).__name__}",
                hint="check the address and the network, then try again",
            ) from None  # the cause contains the request, including the key


def told(row: Mapping[str, Any], *names: str) -> str:
    """Return the text in an answer under nested names.

    Raises:
        ServiceError: There is none.
    """
    value: Any = row
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not value:
        raise ServiceError(
            f"the server answered without {'.'.join(names)}", hint="does trajkit support its version?"
        )
    return value


def bearer(variable: str) -> dict[str, str]:
    """Return the header with the key of an environment variable; empty if it is not set."""
    key = secret_from_environment(variable)
    return {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}


def basic(user: str, password: str) -> str:
    """Return the value of the header `Authorization` for a user and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
