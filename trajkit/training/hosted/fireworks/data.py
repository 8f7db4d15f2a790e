"""Upload datasets to Fireworks: a record first, then its file; it is ready once Fireworks has checked it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from trajkit.errors import ServiceError
from trajkit.training.hosted.answer import LONGEST_S, Refused, Said, pauses
from trajkit.training.hosted.rest import Rest
from trajkit.training.hosted.service import Sent

DIRECT_BYTES = 150_000_000
"""A larger file is uploaded to a separate address."""


class Wire(Said):
    """An answer of Fireworks, whose fields are in camelCase."""

    model_config = ConfigDict(alias_generator=to_camel)


class Status(Wire):
    """An error status."""

    code: str | None = None
    """`OK`, or an error code."""
    message: str | None = None
    """The message."""


class Dataset(Wire):
    """A dataset at Fireworks."""

    name: str
    """Full name, with the account's."""
    state: str | None = None
    """`UPLOADING` or `READY`."""
    status: Status | None = None
    """Error of the dataset if there is one."""


def upload(rest: Rest, account: str, path: Path, *, on_sent: Sent) -> str:
    """Upload a file of rows, wait until Fireworks can read it, and return the name of the dataset.

    Args:
        rest: Its API.
        account: The account's name, with `accounts/` before it.
        path: The file.
        on_sent: Called with the bytes sent and the total.

    Raises:
        ServiceError: Fireworks refuses it; its record is removed again.
    """
    dataset_id = (
        f"trajkit-{secrets.token_hex(8)}"  # a new id each time, so that no other job uses the dataset
    )
    with path.open("rb") as file:
        n_rows = sum(1 for _ in file)
    about = {"userUploaded": {}, "exampleCount": str(n_rows)}
    made = rest.post(f"/v1/{account}/datasets", {"datasetId": dataset_id, "dataset": about})
    name = rest.read(Dataset, made).name
    try:
        if path.stat().st_size <= DIRECT_BYTES:
            rest.post_file(f"/v1/{name}:upload", path, on_sent=on_sent)
        else:
            _put(rest, name, path, on_sent)
        _ready(rest, name, path)
    except BaseException:
        with contextlib.suppress(ServiceError):
            rest.delete(f"/v1/{name}")
        raise
    return name


def _put(rest: Rest, name: str, path: Path, on_sent: Sent) -> None:
    n_bytes = path.stat().st_size
    asked = {"filenameToSize": {path.name: str(n_bytes)}}
    given = rest.post(f"/v1/{name}:getUploadEndpoint", asked).get("filenameToSignedUrls")
    address = given.get(path.name) if isinstance(given, dict) else None
    if not isinstance(address, str):
        raise ServiceError(f"Fireworks gave no address for {path.name}", hint="pip install -U trajkit")
    headers = {"Content-Type": "application/octet-stream"}
    signed = parse_qs(urlsplit(address).query).get("X-Goog-SignedHeaders", [""])[0].split(";")
    if "x-goog-content-length-range" in signed:  # a signed header must be sent
        headers["x-goog-content-length-range"] = f"{n_bytes},{n_bytes}"
    rest.put(address, path, start=0, n_bytes=n_bytes, headers=headers, on_sent=on_sent)
    _patiently(lambda: rest.post(f"/v1/{name}:validateUpload"))


def _patiently(ask: Callable[[], object]) -> None:
    """Repeat a request while the service says that the bytes have not arrived yet."""
    for is_early in pauses():
        try:
            ask()
            return
        except Refused as error:
            is_early &= "FAILED_PRECONDITION" in str(error.body) or error.body.get("code") == 9
            if not is_early:
                raise


def _ready(rest: Rest, name: str, path: Path) -> None:
    for _ in pauses():
        found = rest.read(Dataset, rest.get(f"/v1/{name}"))
        if found.state == "READY":
            return
        if found.status is not None and found.status.code not in (None, "OK"):
            raise ServiceError(
                f"Fireworks refuses {path.name}: {found.status.message or found.status.code}",
                hint=f"`trajkit validate {path} --target fireworks` checks the same rows",
            )
    raise ServiceError(f"{name} is still {found.state} after {LONGEST_S:g} s", hint="try again later")
