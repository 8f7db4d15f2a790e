"""The catalog of a folder of stores: their tags, and the episodes that no store may have again.

It is one small file, `stores/catalog.json`. Writers take turns by a lock, and readers see a whole file.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from trajkit._core.address import is_address, place_of
from trajkit._core.files import unwritable, write_text
from trajkit._core.lock import waiting
from trajkit._core.outside import json_from_outside, problem_of, text_from_outside
from trajkit._core.samples import SAMPLE_PREFIX, samples
from trajkit.errors import DataError, RequestError, StoreError
from trajkit.schema import Model
from trajkit.schema.base import Name, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.store.conditions.nameable import nearest
from trajkit.store.layout import MANIFEST_NAME
from trajkit.store.reader import open_store

CATALOG_NAME = "catalog.json"
"""Name of the file."""

TAG_PREFIX = "@"
"""Prefix of a tag that names a store: `@best`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DIGEST = re.compile("[0-9a-f]{64}")


class Tagged(Model):
    """The store that a tag names, or named before it was moved."""

    digest: Sha256
    """Digest of the store."""
    path: Name
    """The store's folder, relative to the catalog's if it is inside; or `sample:NAME`."""
    tagged_at: UtcTime
    """Time of the tag."""


class _Content(Model):
    format_version: Annotated[int, Field(ge=1, le=1)] = 1
    tags: dict[Name, tuple[Tagged, ...]] = {}
    """By tag the stores that it named, oldest first; the last one counts."""
    forgotten: tuple[Sha256, ...] = ()
    """Hashes of the ids of episodes that were forgotten, sorted."""


class Catalog:
    """The catalog of a folder of stores; without a file it is empty.

    Args:
        folder: The folder, such as `stores`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / CATALOG_NAME

    def tags(self) -> dict[str, tuple[Tagged, ...]]:
        """Return the stores that each tag named, oldest first; the last one counts."""
        return dict(self._read().tags)

    def forgotten(self) -> tuple[str, ...]:
        """Return the hashes of the ids of the episodes that were forgotten."""
        return self._read().forgotten

    def tag(self, name: str, store: str | Path) -> Tagged:
        """Give a store a name, or move the name to it. The stores that it named before stay in its history.

        Raises:
            RequestError: It cannot be a name.
            StoreError: It is not a store, or the catalog cannot be read or written.
        """
        if not _NAME.fullmatch(name):
            raise RequestError(
                f"{name!r} cannot be a tag", hint="letters, digits, _, - and ., at most 64, no sign first"
            )
        opened, folder = open_store(store), self.folder.resolve()
        path = opened.path.relative_to(folder) if opened.path.is_relative_to(folder) else opened.path
        new = Tagged(
            digest=opened.manifest.digest,
            path=str(store if is_sample(str(store)) else path),
            tagged_at=datetime.now(UTC),
        )
        with self._changing() as content:
            before = content.tags.get(name, ())
            if before and (before[-1].digest, before[-1].path) == (new.digest, new.path):
                return before[-1]
            self._write(content.model_copy(update={"tags": {**content.tags, name: (*before, new)}}))
        return new

    def delete(self, name: str) -> Tagged:
        """Remove a tag with its history; the store stays.

        Raises:
            RequestError: There is no such tag.
        """
        with self._changing() as content:
            tags = dict(content.tags)
            gone = tags.pop(name, None)
            if gone is None:
                raise self._unknown(name, tags)
            self._write(content.model_copy(update={"tags": tags}))
        return gone[-1]

    def place(self, tagged: Tagged) -> str:
        """Return where the store of a tag was when it was tagged."""
        is_elsewhere = is_sample(tagged.path) or is_address(tagged.path)
        return tagged.path if is_elsewhere else str(self.folder / tagged.path)

    def find(self, name: str) -> str:
        """Return where the store of a tag is. A store that was moved below the folder is found by its digest.

        Raises:
            RequestError: There is no such tag.
            StoreError: The store is gone, or its folder holds another one.
        """
        tags = self._read().tags
        if name not in tags:
            raise self._unknown(name, tags)
        tagged = tags[name][-1]
        place = self.place(tagged)
        there = digest_at(place)
        if there == tagged.digest:
            return place
        elsewhere = next((path for path, digest in stores_in(self.folder) if digest == tagged.digest), None)
        if elsewhere is not None:
            return str(elsewhere)
        if there is None:
            raise StoreError(
                f"{TAG_PREFIX}{name} is the store {tagged.digest[:12]}, which is not at {place} any more",
                hint=f"`trajkit tag STORE {name}` moves the tag, `trajkit tag --delete {name}` removes it",
            )
        raise StoreError(
            f"{TAG_PREFIX}{name} is the store {tagged.digest[:12]}, and {place} now holds {there[:12]}",
            hint=f"`trajkit tag {place} {name}` moves the tag to what is there now",
        )

    def forget(self, hashes: Iterable[str]) -> None:
        """Add episodes that no store may have again, by the hashes of their ids.

        Raises:
            StoreError: The catalog cannot be read or written.
        """
        with self._changing() as content:
            self._write(
                content.model_copy(update={"forgotten": tuple(sorted({*content.forgotten, *hashes}))})
            )

    def _unknown(self, name: str, tags: Iterable[str]) -> RequestError:
        return RequestError(f"no store has the tag {TAG_PREFIX}{name}", hint=nearest(name, sorted(tags)))

    def _read(self) -> _Content:
        if not os.path.lexists(self.path):
            return _Content()
        text = text_from_outside(self.path, error=StoreError)
        try:
            return _Content.model_validate_json(text)
        except ValidationError as error:
            raise StoreError(
                f"{self.path}: {problem_of(error)}", hint="repair it, or remove it: the tags are then lost"
            ) from error

    def _write(self, content: _Content) -> None:
        write_text(self.path, content.model_dump_json(indent=2) + "\n")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_Content]:
        """Hold the lock of the writers, and yield the present content."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with waiting(self.folder / f".{CATALOG_NAME}.lock"):
                yield self._read()
        except OSError as error:
            raise unwritable(self.path, error) from error


def digest_at(place: str | Path) -> str | None:
    """Return the digest in a store's manifest; None if there is no store. No part is read."""
    text = str(place)
    folder = (
        samples(MANIFEST_NAME).get(text.removeprefix(SAMPLE_PREFIX)) if is_sample(text) else place_of(text)
    )
    if folder is None or not (folder / MANIFEST_NAME).is_file():
        return None
    path = folder / MANIFEST_NAME
    try:
        found = json_from_outside(text_from_outside(path), where=str(path))
    except DataError:
        return None
    digest = found.get("digest") if isinstance(found, dict) else None
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None


def is_sample(place: str) -> bool:
    """Whether a store comes with trajkit."""
    return place.startswith(SAMPLE_PREFIX)


def stores_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield every store below a folder with its digest, by path. Hidden folders are left out."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if MANIFEST_NAME in files and (digest := digest_at(parent)) is not None:
            folders.clear()
            yield Path(parent), digest
