"""Call a service's REST API: JSON requests and answers, refusals as errors with hints, no retries."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from trajkit._core.lazy import need
from trajkit._core.secrets import hidden
from trajkit._core.settings import secret_from_environment
from trajkit.errors import DataError, ServiceError
from trajkit.formats.validation.target import HostedService
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.answer import (
    Answer,
    MissingKey,
    Refused,
    Said,
    Unreachable,
    checked_address,
    client,
    object_of,
    words_of,
)
from trajkit.training.hosted.service import Sent

if TYPE_CHECKING:
    import httpx2

Kind = TypeVar("Kind", bound=Said)

_PIECE = 1 << 20
_PATH = re.compile(r"(?:/[\w.:@+=~-]+)+")
_MOVED = (301, 302, 303, 307, 308)
_UNDONE = (408, 425, 429)  # the request was not carried out
_BUSY = 503
_LONGEST_KEPT = 20_000
_HINTS = {
    402: "the account has no credit left",
    403: "the key, or its account, lacks a permission",
    429: "the service asks for fewer requests: try again later",
}


def url_of(service: HostedService, settings: JsonObject) -> str:
    """Return the address of the API without `/v1`: of the settings, the environment, or the service."""
    url = settings.get("base_url") or os.environ.get(service.url_variable or "") or service.url
    return str(url).rstrip("/").removesuffix("/v1")


class Rest:
    """The API of one service, with one key.

    Args:
        name: Name of the service for messages.
        url: Address, without a slash at the end.
        service: Gives the key's variable.
    """

    def __init__(self, name: str, url: str, service: HostedService) -> None:
        self.name, self.url = name, checked_address(url)
        self._key_variable, self._keys_at = service.key_variable, service.keys_at
        self._http: httpx2.Client | None = None

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """Send a GET request and return the JSON object.

        Raises:
            Refused: The service refuses.
            Unreachable: It cannot be reached.
            MissingKey: There is no key.
        """
        return self.ask("GET", path, params=query).body

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: str | int) -> dict[str, Any]:
        """Send a POST request and return the JSON object; errors as with `get`."""
        return self.ask("POST", path, params=query, json=dict(body or {})).body

    def delete(self, path: str) -> None:
        """Delete an object; a missing one is not an error."""
        try:
            self.ask("DELETE", path)
        except Refused as error:
            if error.status not in (404, 410):
                raise

    def ask(self, method: str, path: str, *, accept: tuple[int, ...] = (), **options: Any) -> Answer:
        """Send one request.

        Args:
            method: HTTP method.
            path: Path after the address of the API.
            accept: Statuses to accept besides 200 to 299.
            options: Options of httpx.
        """
        if not _PATH.fullmatch(path) or "/.." in path:  # a part may be an id that the service gave
            raise ServiceError(f"{path!r} is not a valid path of {self.name}", hint="check the name or id")
        headers = {"Authorization": f"Bearer {self._key()}", **options.pop("headers", {})}
        with self._client() as http:
            answer = http.request(method, self.url + path, headers=headers, **options)
        found = self._checked(answer, accept)
        if answer.content.strip() not in (b"", b"{}") and not found.body:
            raise Unreachable(
                f"{self.name} answered {path} with something other than a JSON object: {answer.text[:60]!r}",
                hint=f"check that {self.url} is the address of its API",
                answer=answer.text[:_LONGEST_KEPT],
            )
        return found

    def read(self, kind: type[Kind], body: Mapping[str, Any]) -> Kind:
        """Parse an answer.

        Raises:
            Unreachable: It does not have the expected form.
        """
        try:
            return kind.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}: {repr(first['input'])[:60]}"
            raise self._unknown(what, body) from None

    def read_all(self, kind: type[Kind], body: Mapping[str, Any], name: str) -> list[Kind]:
        """Parse the list with this name in an answer; empty if it is null or missing."""
        found = body.get(name)
        if not isinstance(found, list | None):
            raise self._unknown(f"{name}: not a list: {repr(found)[:60]}", body)
        return [self.read(kind, each) for each in found or ()]

    def _unknown(self, what: str, body: Any) -> Unreachable:
        return Unreachable(
            f"{self.name} gave an unexpected answer: {what}",
            hint="pip install -U trajkit, as its API may have changed",
            answer=json.dumps(body, ensure_ascii=False)[:_LONGEST_KEPT],
        )

    def put(
        self, url: str, path: Path, *, start: int, n_bytes: int, headers: Mapping[str, str], on_sent: Sent
    ) -> Answer:
        """Send a part of a file to an address from the service, without the key.

        Args:
            url: The address.
            path: The file.
            start: First byte.
            n_bytes: Number of bytes.
            headers: Headers that the address requires besides the length.
            on_sent: Called with the bytes of this part that are sent, and the total.
        """
        address = self._given(url)
        for _ in range(5):
            with self._client() as http:
                answer = http.put(
                    address,
                    content=_pieces(path, start, n_bytes, on_sent),
                    headers={**headers, "Content-Length": str(n_bytes)},
                )
            if answer.status_code not in _MOVED or "location" not in answer.headers:
                return self._checked(answer, ())
            here, address = address, address.join(self._given(str(address.join(answer.headers["location"]))))
            if (here.scheme, here.netloc) != (address.scheme, address.netloc):
                raise ServiceError(
                    f"{here.host} redirects the upload to {address.host}, and rows are sent to no other host",
                    hint="report it to the service",
                )
        raise ServiceError(f"{self.name} redirects the upload too often")

    def post_file(self, path: str, file: Path, *, on_sent: Sent) -> Answer:
        """Send a file as the form field `file`."""
        mark = secrets.token_hex(16)
        disposition = f'Content-Disposition: form-data; name="file"; filename="{file.name}"'
        head = f"--{mark}\r\n{disposition}\r\nContent-Type: application/jsonl\r\n\r\n".encode()
        tail = f"\r\n--{mark}--\r\n".encode()
        n_bytes = file.stat().st_size

        def content() -> Iterator[bytes]:
            yield head
            yield from _pieces(file, 0, n_bytes, on_sent)
            yield tail

        length = str(len(head) + n_bytes + len(tail))
        form = {"Content-Type": f"multipart/form-data; boundary={mark}", "Content-Length": length}
        return self.ask("POST", path, content=content(), headers=form)

    def text(self, url: str) -> str | None:
        """Return the content of an address from the service, without the key; None if nothing is yet."""
        with self._client() as http:
            answer = http.get(self._given(url))
        if answer.status_code in (403, 404):  # storage answers either for a missing object
            return None
        self._checked(answer, ())
        return answer.text

    def _given(self, url: str) -> httpx2.URL:
        """Check an address from the service: it must be encrypted if the service itself is."""
        httpx2 = need("httpx2", extra="hosted")
        try:
            address = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError, ValueError) as error:
            raise ServiceError(f"{self.name} gave an invalid address: {str(url)[:60]!r}") from error
        if address.scheme != "https" and (address.scheme != "http" or self.url.startswith("https://")):
            raise ServiceError(f"{self.name} gave an address that is not encrypted: {str(url)[:60]!r}")
        return address  # type: ignore[no-any-return]

    @contextmanager
    def _client(self) -> Iterator[httpx2.Client]:
        """Yield the client for one request, and convert failures of the network."""
        httpx2 = need("httpx2", extra="hosted")
        if self._http is None:
            self._http = client(
                httpx2.Client,
                secret_from_environment(self._key_variable),
                timeout=httpx2.Timeout(60, connect=15, read=300),
                limits=httpx2.Limits(max_keepalive_connections=0),  # no connections to close later
            )
        try:
            yield self._http
        except httpx2.TransportError as error:
            raise Unreachable(
                f"{self.name} cannot be reached: {self._without_key(str(error)) or type(error).__name__}",
                hint=f"check the address {self.url} and the network, then try again",
            ) from None  # the cause holds the request, and with it the key

    def _checked(self, answer: httpx2.Response, accept: tuple[int, ...]) -> Answer:
        status = answer.status_code
        body = object_of(answer.content)
        if 200 <= status < 300 or status in accept:
            return Answer(status, answer.headers, body)
        said = self._without_key(words_of(body) or answer.text[:300].strip() or answer.reason_phrase)
        if status in _UNDONE or status >= 500:
            raise Unreachable(
                f"{self.name} has no answer now: {said} (HTTP {status})",
                hint=_HINTS.get(status, "try again later"),
                # a 503 in the API's own format is a refusal; a proxy's may come after the work was done
                is_undone=status in _UNDONE or (status == _BUSY and bool(body)),
            )
        hint = _HINTS.get(status)
        if status in _MOVED:
            hint = f"{self.url} redirects, which is not followed: use the final address"
        if status == 401:
            hint = f"the key in {self._key_variable} is not accepted; keys are at {self._keys_at}"
        message = f"{self.name} refused: {said} (HTTP {status})"
        raise Refused(message, said=said, status=status, body=body, hint=hint)

    def _key(self) -> str:
        key = secret_from_environment(self._key_variable)
        if key is None:
            raise MissingKey(
                f"no key for {self.name}: {self._key_variable} is not set",
                hint=f"export {self._key_variable}=…; keys are at {self._keys_at}",
            )
        return key.get_secret_value()

    def _without_key(self, text: str) -> str:
        """Remove the key, which a service may repeat."""
        return hidden(text, secret_from_environment(self._key_variable))


def _pieces(path: Path, start: int, n_bytes: int, on_sent: Sent) -> Iterator[bytes]:
    n_sent = 0
    with path.open("rb") as file:
        file.seek(start)
        while n_sent < n_bytes:
            piece = file.read(min(_PIECE, n_bytes - n_sent))
            if not piece:
                raise DataError(f"{path} became shorter during the upload")
            yield piece
            n_sent += len(piece)
            on_sent(n_sent, n_bytes)
