"""What a repository on the Hub says about the stores or the model in it, and that a store was put there."""

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
"""The file of a repository that says what was put there. A repository without one is not ours."""

RECORD_VERSION = 1
"""The version of that file that is written, and the newest that is read."""

PULL = "pull"
"""The verb that lineage has of a store that came from the Hub."""


class PublishedFile(Model):
    """A file of a repository."""

    path: Name
    """Within the repository, with forward slashes."""
    sha256: Sha256
    """Of its bytes."""
    n_bytes: Count
    """Its size."""
    n_rows: Count | None = None
    """Its rows; None where it has none."""


class PublishedPart(Model):
    """Rows of some whole episodes, which follow those of the part before in the same files."""

    file: Count
    """Which file of each table, from 0."""
    n_episodes: Count
    """Rows of `episodes`."""
    n_steps: Count
    """Rows of `steps`."""
    n_feedback: Count
    """Rows of `feedback`."""


class PublishedStore(Model):
    """A store as a repository has it: everything of its manifest that its content does not say."""

    split: Name
    """The split that it is."""
    store_version: Annotated[int, Field(ge=1)]
    """Version of the store's layout."""
    kind: Name
    """What made the store."""
    digest: Sha256
    """Digest of its content: what is pulled has the same."""
    counts: Counts
    """How much it holds."""
    metrics: tuple[Metric, ...] = ()
    """The metrics that have a column."""
    side: Text | None = None
    """Which side of a split the store says it is."""
    source: JsonObject = {}
    """Where it came from, without paths of the machine."""
    as_of: UtcTime | None = None
    """The newest moment its source was read at."""
    lineage: tuple[LineageEntry, ...] = ()
    """What was done, oldest first, without paths of the machine."""
    files: dict[str, tuple[Name, ...]] = {}
    """Its files by table, in their order; a table without rows has none. The files of one place belong to the
    same episodes: the second file of `steps` has the steps of the second of `episodes`."""
    parts: tuple[PublishedPart, ...] = ()
    """Where the store's parts are in those files, in order: one at a time is put together again."""


class Moved(Model):
    """What is too wide for the Hub's viewer and was put into files of its own."""

    table: Name
    """Where it was."""
    n_rows: Count
    """Rows that it is of."""
    n_values: Count
    """Values, or whole rows."""


class Record(Model):
    """What a repository holds: the file `trajkit.json`."""

    record_version: Annotated[int, Field(ge=1)] = RECORD_VERSION
    """Version of this file."""
    kind: Literal["dataset", "model"] = "dataset"
    """What the repository is."""
    stores: tuple[PublishedStore, ...] = ()
    """The stores, a split each."""
    moved: tuple[Moved, ...] = ()
    """What was too wide."""
    files: tuple[PublishedFile, ...] = ()
    """Every file that was put there but this one and the card."""


def read_record(text: bytes, where: str) -> Record:
    """The record of a repository.

    Args:
        text: The file.
        where: What to call it in messages.

    Raises:
        StoreError: It is of a newer version.
        DataError: It is damaged, a split has a name that is a path, or two have the same.
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
    """The file."""
    return record.model_dump_json(indent=2) + "\n"


def public_facts(manifest: Manifest) -> dict[str, Any]:
    """Source and lineage of a store without paths of this machine.

    Pulls at the end are left out: they say how the store came here, and pushing it again changes nothing.
    """
    lineage = list(manifest.lineage)
    while lineage and lineage[-1].verb == PULL:
        lineage.pop()
    return {
        "source": _without_paths(manifest.source),
        "lineage": tuple(
            entry.model_copy(update={"arguments": _without_paths(entry.arguments)}) for entry in lineage
        ),
    }


def add_publication(store: Store, published: Published) -> None:
    """Write into a store's manifest that it was published; what it says already is not written twice.

    The manifest of a sample, which comes with trajkit, stays as it is.

    Raises:
        StoreError: The manifest cannot be read or written.
    """
    if store.path in samples(MANIFEST_NAME).values():
        return
    manifest = open_store(store.path).manifest
    same = {"published_at", "trajkit_version", "is_private"}
    said = published.model_dump(exclude=same)
    if any(each.model_dump(exclude=same) == said for each in manifest.published):
        return
    told = manifest.model_copy(update={"published": (*manifest.published, published)})
    try:
        write_text(store.path / MANIFEST_NAME, told.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise StoreError(f"{store.path / MANIFEST_NAME} cannot be written: {error.strerror}") from error


def _without_paths(value: Any) -> Any:
    """The same with the last name of each absolute path in place of the path."""
    if isinstance(value, str):
        is_path = value.startswith(("/", "~/")) and "\n" not in value
        return (PurePath(value).name or value) if is_path else value
    if isinstance(value, dict):
        return {name: _without_paths(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item) for item in value]
    return value
