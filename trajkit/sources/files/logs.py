"""Read Inspect's logs: zip files with a member per sample (`.eval`), or one JSON file with all of them.

Nothing is unpacked to disk, and no member is read beyond the maximum size of a document, whatever size the
file states: a larger member is a problem and is not read.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from trajkit.formats.reading.document import BadDocument, object_at
from trajkit.formats.reading.inspect import error_of, is_inspect, read_sample
from trajkit.sources.files.found import MOST_BYTES, Found, Unread
from trajkit.sources.files.texts import json_of, opened, read_whole
from trajkit.sources.files.walk import files_under, shown_path

_HEADERS = ("header.json", "_journal/start.json", "start.json")
_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED

_Part = tuple[str, Callable[[], Any], dict[str, Any]]
"""The place of a sample, its reader, and its log."""


def logs(root: Path, *, include_errored: bool) -> Iterator[Found | Unread]:
    """Yield every sample of every log under a path.

    Args:
        root: A file or a folder.
        include_errored: Whether failed samples are read as well.
    """
    within = root if root.is_dir() else None
    for path in files_under(root) if within else [root]:
        place, suffix = shown_path(path, root), path.suffix.lower()
        if suffix not in (".eval", ".json"):
            yield Unread(suffix)
            continue
        try:
            for at, read, log in (_zipped if suffix == ".eval" else _plain)(path, place, within):
                yield _sample(read, log, at, include_errored=include_errored)
        except BadDocument as error:
            yield Found(place, problem=error.problem)


def _plain(path: Path, place: str, within: Path | None) -> Iterator[_Part]:
    log = json_of(read_whole(path, within), is_last_line=True)
    if not is_inspect(log):
        raise BadDocument("not a log of Inspect")
    for number, sample in enumerate(log.pop("samples", None) or [], 1):
        yield f"{place}:{number}", partial(object_at, sample, "sample"), log


def _zipped(path: Path, place: str, within: Path | None) -> Iterator[_Part]:
    try:
        with opened(path, within) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            header = next((name for name in _HEADERS if name in names), None)
            if header is None:
                raise BadDocument("not a log of Inspect: it has no header")
            log = object_at(json_of(_member(archive, header)), header)
            for name in names:
                if name.startswith("samples/") and name.endswith(".json"):
                    yield f"{place}:{name}", lambda name=name: json_of(_member(archive, name)), log  # type: ignore[misc]
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise BadDocument("not a readable zip file", value=str(error)) from error


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a member, at most as many as a document may have."""
    method = archive.getinfo(name).compress_type
    if method not in (_STORED, _DEFLATED):
        raise BadDocument(
            f"packed in a way that Python's zipfile does not read (method {method}); "
            "`inspect log convert --to json` makes a readable file",
            name,
        )
    try:
        with archive.open(name) as member:
            data = member.read(MOST_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise BadDocument("a member that cannot be read", name, str(error)) from error
    if len(data) > MOST_BYTES:
        raise BadDocument(f"unpacks to more than {MOST_BYTES // 1_000_000} MB", name)
    return data


def _sample(read: Callable[[], Any], log: dict[str, Any], place: str, *, include_errored: bool) -> Found:
    try:
        sample = object_at(read(), "sample")
        if (error := error_of(sample)) and not include_errored:
            return Found(place, aside=f"ended in an error: {error}")
        return Found(place, read_sample(sample, log))
    except BadDocument as bad:
        return Found(place, problem=bad.problem)
