"""Upload files to Together, which gives an upload address, stores equal files once, and checks rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field

from trajkit._core.files import sha256_file
from trajkit.errors import ServiceError
from trajkit.training.hosted.answer import Said, pauses
from trajkit.training.hosted.rest import Rest
from trajkit.training.hosted.service import Sent

FILES = "/v1/files"
PARTS_FROM = 5 * 2**30
"""Size in bytes above which a file is sent in parts."""
PART_BYTES = 250 * 2**20
_MOST_PARTS = 250


class Report(Said):
    """The result of Together's check of a file."""

    error: str | None = None
    """The problem; None when there is none."""


class File(Said):
    """A file at Together."""

    id: str
    """Its id."""
    processing_status: str | None = None
    """Status of the check; None if there is none."""
    validation_report: Report | None = None
    """Result of the check."""


def upload(rest: Rest, path: Path, *, on_sent: Sent) -> str:
    """Upload a file of rows, wait until Together has checked it, and return its id.

    Args:
        rest: Its API.
        path: The file.
        on_sent: Called with the bytes sent and the total.

    Raises:
        ServiceError: Together refuses it; if because of its rows, the file is deleted again.
    """
    about = {
        "purpose": "fine-tune",
        "file_name": path.name,
        "file_type": "jsonl",
        "checksum": sha256_file(path),
    }
    n_bytes = path.stat().st_size
    if n_bytes > PARTS_FROM:
        size = max(PART_BYTES, -(-n_bytes // _MOST_PARTS))
        file_id = _in_parts(rest, path, about, size, on_sent)
    else:
        file_id = _whole(rest, path, about, on_sent)
    return _looked_at(rest, file_id, path)


def _whole(rest: Rest, path: Path, about: Mapping[str, str], on_sent: Sent) -> str:
    form = {name: (None, value) for name, value in about.items()}
    answer = rest.ask("POST", FILES, files=form, accept=(302, 409))
    if answer.status == 409:  # Together has the same bytes already
        return _known(answer.body)
    address, file_id = answer.headers.get("location"), answer.headers.get("x-together-file-id")
    if not address or not file_id:
        raise ServiceError(f"{rest.name} gave no address for {path.name}", hint="pip install -U trajkit")
    rest.put(address, path, start=0, n_bytes=path.stat().st_size, headers={}, on_sent=on_sent)
    return rest.read(File, rest.post(f"{FILES}/{file_id}/preprocess")).id


def _in_parts(rest: Rest, path: Path, about: Mapping[str, str], size: int, on_sent: Sent) -> str:
    n_bytes = path.stat().st_size
    asked = {**about, "file_size": n_bytes, "num_parts": -(-n_bytes // size)}
    answer = rest.ask("POST", f"{FILES}/multipart/initiate", json=asked, accept=(409,))
    if answer.status == 409:
        return _known(answer.body)
    begun = rest.read(_Begun, answer.body)
    ids = {"upload_id": begun.upload_id, "file_id": begun.file_id}
    try:
        parts = list(_sent(rest, path, begun.parts, size, on_sent))
        done = rest.post(f"{FILES}/multipart/complete", {**ids, "parts": parts})
    except BaseException:
        with contextlib.suppress(ServiceError):
            rest.post(f"{FILES}/multipart/abort", ids)
        raise
    return rest.read(File, done.get("file", done)).id


class _Begun(Said):
    upload_id: str
    file_id: str
    parts: list[_Part]


class _Part(Said):
    number: int | None = Field(default=None, validation_alias=AliasChoices("PartNumber", "part_number"))
    url: str = Field(validation_alias=AliasChoices("URL", "UploadURL"))
    headers: dict[str, str] | None = Field(default=None, validation_alias="Headers")


def _sent(rest: Rest, path: Path, parts: list[_Part], size: int, on_sent: Sent) -> Iterator[dict[str, Any]]:
    n_bytes = path.stat().st_size
    for position, part in enumerate(parts):
        number = part.number or position + 1
        start = (number - 1) * size
        if not 0 <= start < n_bytes:
            raise ServiceError(f"{rest.name} asks for part {number}, which {path.name} does not have")
        answer = rest.put(
            part.url,
            path,
            start=start,
            n_bytes=min(size, n_bytes - start),
            headers=part.headers or {},
            on_sent=lambda n_done, _, start=start: on_sent(start + n_done, n_bytes),  # type: ignore[misc]
        )
        yield {"part_number": number, "etag": answer.headers.get("etag", "").strip('"')}


def _known(body: Mapping[str, Any]) -> str:
    return str(body.get("file_id") or "")


def _looked_at(rest: Rest, file_id: str, path: Path) -> str:
    """Wait for Together's check of a file. If the check takes too long, the job itself waits for it."""
    for _ in pauses():
        found = rest.read(File, rest.get(f"{FILES}/{file_id}"))
        if found.processing_status in ("INVALID_FORMAT", "FAILED"):
            report = found.validation_report
            why = report.error if report is not None and report.error else found.processing_status
            rest.delete(f"{FILES}/{file_id}")
            raise ServiceError(
                f"Together refuses {path.name}: {why}",
                hint=f"it is deleted there; `trajkit validate {path} --target together` checks the same rows",
            )
        if found.processing_status not in ("PENDING", "QUEUED", "RUNNING"):
            break
    return file_id
