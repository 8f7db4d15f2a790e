"""Use the `openai` package: choose service and address, upload files, convert errors and answers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trajkit._core.lazy import need
from trajkit._core.secrets import hidden
from trajkit._core.settings import secret_from_environment
from trajkit.errors import RequestError, ServiceError
from trajkit.formats.validation.target import HOSTED, HostedService
from trajkit.rollouts.faults import FaultKind, fault_of_status, said_in, shown
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.answer import MissingKey, Unreachable, checked_address, client, harmless, way_out
from trajkit.training.hosted.service import PLAIN, Sent

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

_SHORT_S = 60.0
_PASSING = (FaultKind.RATE_LIMIT, FaultKind.TIMEOUT, FaultKind.SERVER)
_BUSY = 503
_LONGEST_KEPT = 20_000
PART_BYTES = 64 * 1024 * 1024
TAKING_IN = ("pending", "running")
"""Azure's states of an uploaded file that no job can use yet."""
POLL_S, LONGEST_S = 2.0, 900.0
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AZURE_VARIABLE = "AZURE_OPENAI_ENDPOINT"
PROFILES = {service.name: service for service in HOSTED.values() if service.api == "openai"}
"""The services with this API, by name."""
OPENAI, OTHER = PROFILES["openai"], PROFILES["other"]


class Client:
    """Calls one service with its key.

    Args:
        profile: The service.
        url: Address of the API, including `/v1`.
    """

    def __init__(self, profile: HostedService, url: str) -> None:
        self._variable, self._url = profile.key_variable, url
        self._key = secret_from_environment(profile.key_variable)
        self._rules = profile.rows.name

    @contextlib.contextmanager
    def talk(self, what: str, *, max_retries: int = 2, timeout_s: float = _SHORT_S) -> Iterator[OpenAI]:
        """Yield a client, and convert its errors in the block."""
        openai = need("openai", extra="openai")
        if self._key is None:
            raise MissingKey(
                f"{self._variable} is not set: it holds the key for {self._url}",
                hint=f"export {self._variable}=… in this terminal; trajkit never stores it",
            )
        with openai.OpenAI(
            base_url=self._url,
            api_key=self._key.get_secret_value(),
            max_retries=max_retries,
            timeout=timeout_s,
            http_client=client(openai.DefaultHttpxClient, self._key),
        ) as talking:
            try:
                yield talking
            # no error gets a cause: the request in the cause holds the key
            except openai.APIStatusError as error:
                raise self._refusal(error, what) from None
            except openai.APIConnectionError as error:
                if isinstance(error.__cause__, Unreachable):
                    raise error.__cause__ from None
                raise self._silence(error, what) from None
            except (openai.APIError, ValueError, KeyError, AttributeError, TypeError) as error:
                # the package parses JSON of another shape as its own objects
                raise self._nonsense(what, str(getattr(error, "doc", error))) from None

    def masked(self, content: bytes) -> bytes:
        """Remove the key from the content of a file."""
        return harmless(content, self._key)

    def read(self, answer: Any, what: str) -> Mapping[str, Any]:
        """Convert an answer to a mapping with an id, which the package does not check."""
        found = answer.to_dict(mode="json", warnings=False) if hasattr(answer, "to_dict") else answer
        if not isinstance(found, Mapping):
            raise self._nonsense(what, str(answer))
        if not isinstance(found.get("id"), str) or not re.fullmatch(PLAIN, found["id"]):
            raise self._nonsense(what, json.dumps(dict(found), ensure_ascii=False))
        return found

    def _refusal(self, error: APIStatusError, what: str) -> ServiceError:
        """Return the error for an HTTP status that is not a success.

        Args:
            error: The client's exception.
            what: The request in words, such as `creating the job`.
        """
        status, code = error.status_code, error.code
        said = self.safe(said_in(error.body) or error.message)
        message = f"{what}: {self._url} answered {status}: {said}"
        fault = fault_of_status(status, message, code=code, headers=error.response.headers)
        if fault.kind in _PASSING:
            # a 503 in the API's own format is a refusal; a proxy's may come after the work was done
            is_undone = status < 500 or (status == _BUSY and isinstance(error.body, Mapping))
            return Unreachable(message, hint="it may pass: try again later", is_undone=is_undone)
        return ServiceError(message, hint=self._hint(status, code, said))

    def _silence(self, error: Exception, what: str) -> Unreachable:
        """Return the error for a missing answer."""
        said = self.safe(str(error.__cause__ or error)) or type(error).__name__
        return Unreachable(
            f"{what}: {self._url} cannot be reached: {said}", hint="check the network and the address"
        )

    def _nonsense(self, what: str, said: str) -> Unreachable:
        """Return the error for an answer that is not the API's; the request may have been carried out."""
        return Unreachable(
            f"{what}: {self._url} gave an answer that is not the API's: {self.safe(said)}",
            hint="check the address, including /v1",
            answer=said[:_LONGEST_KEPT],
        )

    def safe(self, text: str) -> str:
        """Return a service's message, shortened and without the key."""
        return shown(hidden(text, self._key))

    def _hint(self, status: int, code: str | None, said: str) -> str | None:
        rows = Path("runs/JOB/training.jsonl")
        if (known := way_out(code, said, rows=rows, rules=self._rules)) is not None:
            return known
        if 300 <= status < 400:
            return f"{self._url} redirects, which is not followed: use the final address"
        if status == 401:
            return f"check the key in {self._variable}, and that it belongs to this service"
        if status == 403:
            return f"the key in {self._variable} lacks a permission: models, files and fine-tuning"
        if status == 404:
            return "check the address, including /v1, and whether the service has fine-tuning"
        return None


def first_page(listing: Any) -> list[Any]:
    """Return the items of a listing's first page."""
    data = getattr(listing, "data", None)
    return data if isinstance(data, list) else []


def objects(listing: Iterable[Any], most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the items of a listing, page after page, up to a limit.

    Raises:
        KeyError: It is not a listing, so nothing is known about its items.
    """
    data = getattr(listing, "data", None)
    fields: Collection[str] = getattr(listing, "model_fields_set", ())  # none where it is not an object
    if not isinstance(data, list) and (data is not None or "data" not in fields):
        raise KeyError("data")
    seen: set[object] = set()
    for item in islice(listing, most):
        found = item.to_dict(mode="json", warnings=False) if hasattr(item, "to_dict") else {}
        if found.get("id") in seen:
            return  # the service repeats the same page
        seen.add(found.get("id"))
        yield found


def upload(client: OpenAI, path: Path, *, parts_from: int, on_sent: Sent) -> Any:
    """Upload a file.

    Args:
        client: The client.
        path: The file.
        parts_from: Size from which a file is sent in parts.
        on_sent: Called with the bytes sent and the total.

    Returns:
        The client's file object, once the service has processed the file; None if the service completed
        an upload without one.
    """
    sent = _sent(client, path, parts_from=parts_from, on_sent=on_sent)
    deadline = time.monotonic() + LONGEST_S
    while getattr(sent, "status", None) in TAKING_IN and time.monotonic() < deadline:
        time.sleep(POLL_S)
        sent = client.files.retrieve(sent.id)
    return sent


def _sent(client: OpenAI, path: Path, *, parts_from: int, on_sent: Sent) -> Any:
    n_bytes = path.stat().st_size
    if n_bytes < parts_from:
        with path.open("rb") as file:
            sent = client.files.create(file=(path.name, file), purpose="fine-tune")
        on_sent(n_bytes, n_bytes)
        return sent
    begun = client.uploads.create(
        bytes=n_bytes, filename=path.name, mime_type="application/jsonl", purpose="fine-tune"
    )
    parts, n_done = [], 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(PART_BYTES):
                parts.append(client.uploads.parts.create(begun.id, data=chunk).id)
                n_done += len(chunk)
                on_sent(n_done, n_bytes)
        return client.uploads.complete(begun.id, part_ids=parts).file
    except BaseException:
        with contextlib.suppress(Exception):  # an unfinished upload expires within an hour
            client.uploads.cancel(begun.id)
        raise


def address_of(settings: JsonObject) -> tuple[HostedService, str]:
    """Return the service and the address of its API.

    Args:
        settings: `profile` and `base_url`. Without an address, that of the profile or of the environment
            (`OPENAI_BASE_URL`) is used; without a profile, the one of the address.

    Raises:
        RequestError: There is no such profile, or no valid address.
    """
    name = settings.get("profile")
    if name is not None and name not in PROFILES:
        raise RequestError(f"no profile {name!r}", hint=f"profiles: {', '.join(PROFILES)}")
    profile = None if name is None else PROFILES[str(name)]
    given = settings.get("base_url")
    variable = (profile or OPENAI).url_variable
    if given is None and variable is not None:
        given = os.environ.get(variable) or None
    url = str(given).rstrip("/") if given is not None else _usual(profile or OPENAI)
    host = urlsplit(checked_address(url)).hostname
    return profile or next((each for each in PROFILES.values() if each.is_at(host)), OTHER), url


def _usual(profile: HostedService) -> str:
    """Return the profile's own address."""
    if profile.url is not None:
        return profile.url
    if profile.name == "azure" and (endpoint := os.environ.get(_AZURE_VARIABLE)):
        return f"{endpoint.rstrip('/')}/openai/v1"
    if profile.name == "bedrock":
        for variable in _REGION_VARIABLES:
            if region := os.environ.get(variable):
                return f"https://bedrock-mantle.{region}.api.aws/v1"
    hints = {
        "azure": f"set {_AZURE_VARIABLE}, or --base-url https://RESOURCE.openai.azure.com/openai/v1",
        "bedrock": f"set {_REGION_VARIABLES[0]}, or --base-url https://bedrock-mantle.REGION.api.aws/v1",
    }
    raise RequestError(
        f"the profile {profile.name} needs an address",
        hint=hints.get(profile.name, f"--base-url URL, or set {profile.url_variable}"),
    )
