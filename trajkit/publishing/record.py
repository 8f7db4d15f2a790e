"""The record of a repository: its stores or model, and the entry of a publication in a store's manifest."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from trajkit._core.files import write_text
from trajkit._core.outside import json_from_outside, name_from_outside
from trajkit._core.samples import samples
from trajkit.errors import DataError, StoreError
from trajkit.schema import Counts, LineageEntry, Manifest, Metric, Model, Published
from trajkit.schema.base import Count, JsonObject, Name, Text, UtcTime
from trajkit.schema.manifest import Sha256
from trajkit.store.layout import MANIFEST_NAME
from trajkit.store.reader import Store, open_store

RECORD = "trajkit.json"
"""Name of the record's file. A repository without it was not pushed by trajkit."""

RECORD_VERSION = 1
"""Version of the record that is written, and the newest that is read."""

PULL = "pull"
"""Lineage verb of a store that was pulled from the Hub."""


class PublishedFile(Model):
    """A file of a repository."""

    path: Name
    """Path within the repository, with forward slashes."""
    sha256: Sha256
    """Sha256 of its bytes."""
    n_bytes: Count
    """Its size."""
    n_rows: Count | None = None
    """Number of rows; None if it has no rows."""


class PublishedPart(Model):
    """Rows of whole episodes, which follow those of the previous part in the same files."""

    file: Count
    """Index of the file in each table, from 0."""
    n_episodes: Count
    """Rows of `episodes`."""
    n_steps: Count
    """Rows of `steps`."""
    n_feedback: Count
    """Rows of `feedback`."""


class PublishedStore(Model):
    """A published store: everything in its manifest that its content does not give."""

    split: Name
    """Name of the split."""
    store_version: Annotated[int, Field(ge=1)]
    """Version of the store's layout."""
    kind: Name
    """Command that made the store."""
    digest: Sha256
    """Digest of its content; the pulled store has the same."""
    counts: Counts
    """Numbers of episodes, steps and feedback."""
    metrics: tuple[Metric, ...] = ()
    """The metrics that have a column."""
    side: Text | None = None
    """Side of a split that the manifest records."""
    source: JsonObject = {}
    """Source of the store, without paths of the machine."""
    as_of: UtcTime | None = None
    """Newest time at which its source was read."""
    lineage: tuple[LineageEntry, ...] = ()
    """Lineage, oldest first, without paths of the machine."""
    files: dict[str, tuple[Name, ...]] = {}
    """Its files by table, in order; a table without rows has none. Files of one index belong to the same
    episodes: the second file of `steps` has the steps of the second file of `episodes`."""
    parts: tuple[PublishedPart, ...] = ()
    """The store's parts within those files, in order, so that they can be restored one at a time."""


class Moved(Model):
    """Values that are too wide for the Hub's viewer and were moved to separate files."""

    table: Name
    """Table that they were moved from."""
    n_rows: Count
    """Rows that values were moved from."""
    n_values: Count
    """Moved values, or whole rows."""


class Record(Model):
    """Content of a repository: the file `trajkit.json`."""

    record_version: Annotated[int, Field(ge=1)] = RECORD_VERSION
    """Version of this file."""
    kind: Literal["dataset", "model"] = "dataset"
    """Kind of the repository."""
    stores: tuple[PublishedStore, ...] = ()
    """The stores, one per split."""
    moved: tuple[Moved, ...] = ()
    """Values that were moved because they are too wide."""
    files: tuple[PublishedFile, ...] = ()
    """Every pushed file except for this one and the card."""


def read_record(text: bytes, where: str) -> Record:
    """Parse the record of a repository.

    Args:
        text: Content of the file.
        where: Name of the file for messages.

    Raises:
        StoreError: It is of a newer version.
        DataError: It is damaged, a split's name is a path, or two splits have the same name.
    """
    value = json_from_outside(text, where=where)
    try:
        version = value.get("record_version") if isinstance(value, dict) else None
        if isinstance(version, int) and version > RECORD_VERSION:
            raise StoreError(
                f"{where} is of version {version}; this trajkit reads up to {RECORD_VERSION}",
                hint="pip install -U trajkit",
            )
        record = Record.model_validate_json(text)
    except ValidationError as error:
        raise DataError(f"{where} is damaged: {str(error).splitlines()[0]}") from error
    for store in record.stores:
        name_from_outside(store.split, what=f"a split in {where}")
    splits = [store.split for store in record.stores]
    for split in splits:
        if splits.count(split) > 1:
            raise DataError(f"{where} names the split {split!r} {splits.count(split)} times")
    return record


def record_text(record: Record) -> str:
    """Return the text of the record's file."""
    return record.model_dump_json(indent=2) + "\n"


def public_facts(manifest: Manifest) -> dict[str, Any]:
    """Return source and lineage of a store without local paths.

    Pulls at the end of the lineage are left out, so that pushing a pulled store again changes nothing.
    """
    lineage = list(manifest.lineage)
    while lineage and lineage[-1].verb == PULL and lineage[-1].parent_digest is not None:
        lineage.pop()
    return {
        "source": _without_paths(manifest.source),
        "lineage": tuple(
            entry.model_copy(update={"arguments": _without_paths(entry.arguments)}) for entry in lineage
        ),
    }


def add_publication(store: Store, published: Published) -> None:
    """Record in a store's manifest that it was published, unless the same is recorded already.

    The manifest of a sample, which is part of trajkit, is not changed.

    Raises:
        StoreError: The manifest cannot be read or written.
    """
    if store.path in samples(MANIFEST_NAME).values():
        return
    manifest = open_store(store.path).manifest
    volatile = {"published_at", "trajkit_version", "is_private"}
    entry = published.model_dump(exclude=volatile)
    if any(each.model_dump(exclude=volatile) == entry for each in manifest.published):
        return
    extended = manifest.model_copy(update={"published": (*manifest.published, published)})
    try:
        write_text(store.path / MANIFEST_NAME, extended.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise StoreError(f"{store.path / MANIFEST_NAME} cannot be written: {error.strerror}") from error


def _without_paths(value: Any) -> Any:
    """Replace each absolute path by its last part."""
    if isinstance(value, str):
        is_path = value.startswith(("/", "~/")) and "\n" not in value
        return (PurePath(value).name or value) if is_path else value
    if isinstance(value, dict):
        return {name: _without_paths(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item) for item in value]
    return value
