"""The versions that led to a store, and the command that makes each from those before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajkit._core.address import place_of
from trajkit._core.samples import SAMPLE_PREFIX, samples
from trajkit.commands.place import catalog, near, store_path
from trajkit.commands.recipe.verb import Unfit, Verb, check, find, typed
from trajkit.errors import DataError, StoreError
from trajkit.schema import LineageEntry, Manifest

SHORT = 12
"""Digits of a digest that are shown."""

_DIGEST = re.compile("[0-9a-f]{64}")
_COMMANDS = {
    **{name: name for name in ("import", "export", "pull", "merge", "leak", "redact", "score", "replay")},
    **{name: name for name in ("select", "dedupe", "split", "mask", "weight")},
    "control": "select",  # it is drawn and written together with the selection
}
"""The verbs that can be repeated, and the command of each."""
_WITHOUT_PARENT = ("import", "pull", "merge")
"""Commands that read no parent, or name their parents as options."""
_BARRED = ("output", "dry_run", "yes", "json", "help")
"""Options that no history may set."""
_WHY = {
    "rollout": "it was played, and the same episodes are not played twice",
    "evaluate": "models answered, and may answer differently now",
    "rl local": "it was played while a model was trained",
    "record": "it was recorded while an agent ran",
    "feedback": "it was recorded while an agent ran",
}


class Unrepeatable(Exception):
    """A lineage entry that cannot be repeated as a command; the message explains why."""


@dataclass(frozen=True, eq=False)
class Version:
    """A store in a history."""

    digest: str | None
    """Its digest; None if the history does not record it."""
    entry: LineageEntry | None
    """What made it; None if that is unknown."""
    parents: tuple[Version, ...] = ()
    """The stores that it was made from."""
    shared: Version | None = None
    """For a merge: the version where the histories of its parents diverge; None if they share nothing."""


def history(manifest: Any) -> Version:
    """Return the newest version of the history in the manifest of a store or of pairs.

    Raises:
        DataError: The lineage of a merged store is damaged.
    """
    return _grown(None, tuple(manifest.lineage), manifest.digest)


def _grown(version: Version | None, entries: Sequence[LineageEntry], digest: str | None) -> Version:
    """The version after some entries."""
    for number, entry in enumerate(entries):
        after = digest if number + 1 == len(entries) else _input_of(entries[number + 1])
        if entry.verb == "merge" and (stores := _merged(entry)):
            parents = tuple(_grown(version, lineage, each) for each, lineage in stores)
            version = Version(after, entry, parents, version)
            continue
        if version is None and entry.parent_digest is not None:
            version = Version(entry.parent_digest, None)
        version = Version(after, entry, () if version is None else (version,))
    return version or Version(digest, None)


def _input_of(entry: LineageEntry) -> str | None:
    """The digest of the store that an entry, or the first entry after it in a merge, was made of."""
    for digest, lineage in _merged(entry)[:1] if entry.verb == "merge" else ():
        return _input_of(lineage[0]) if lineage else digest
    return entry.parent_digest


def _merged(entry: LineageEntry) -> list[tuple[str, tuple[LineageEntry, ...]]]:
    """The digest of each merged store, and its history since it parted from the others."""
    stores: Any = entry.arguments.get("stores") or ()
    try:
        return [
            (store["digest"], tuple(LineageEntry.model_validate(each) for each in store["lineage"]))
            for store in stores
        ]
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"the lineage of a merge is damaged: {str(error).splitlines()[0]}", hint="merge its stores again"
        ) from error


def manifest_at(place: str) -> Manifest:
    """Return the manifest of a store, whose parts may be missing, or of a manifest file.

    Raises:
        StoreError: There is none.
    """
    from trajkit.store.layout import MANIFEST_NAME
    from trajkit.store.reader import open_store, read_manifest

    if place.startswith(SAMPLE_PREFIX):
        return open_store(place).manifest
    path = place_of(place)
    return read_manifest(path if path.is_file() else path / MANIFEST_NAME)


class Shelves:
    """Finds whole stores by their digest: those with a tag, those below some folders, and the samples.

    Args:
        folders: The folders.
        but: A store to skip.
    """

    def __init__(self, folders: Sequence[Path], *, but: Path | None = None) -> None:
        from trajkit.store.catalog import Catalog

        self._but = None if but is None else but.resolve()
        self._places: dict[str, list[str]] = {}
        self.forgotten = {
            each for folder in (catalog().folder, *folders) for each in Catalog(folder).forgotten()
        }
        """Hashes of the ids of forgotten episodes, of every catalog there."""
        for path, digest in self._all(folders):
            self._places.setdefault(digest, []).append(path)

    def find(self, digest: str | None) -> str | None:
        """Return where a whole store with this digest is; None if there is none."""
        return next((place for place in self._places.get(digest or "", ()) if self._is(place, digest)), None)

    def named(self, digest: str | None) -> str:
        """Return where the store is, else the beginning of its digest."""
        return self.find(digest) or (digest or "unknown")[:SHORT]

    def _all(self, folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
        from trajkit.store.catalog import stores_in
        from trajkit.store.layout import MANIFEST_NAME
        from trajkit.store.reader import read_manifest

        known = catalog()
        for folder in (known.folder, *folders):
            yield from ((str(near(path)), digest) for path, digest in stores_in(folder))
        for stores in known.tags().values():
            for each in stores:
                yield known.place(each), each.digest
        for name, path in samples(MANIFEST_NAME).items():
            yield f"{SAMPLE_PREFIX}{name}", read_manifest(path / MANIFEST_NAME).digest

    def _is(self, place: str, digest: str | None) -> bool:
        from trajkit.store.reader import open_store

        try:
            store = open_store(place)
        except StoreError:
            return False
        return store.manifest.digest == digest and store.path != self._but


def verb_of(entry: LineageEntry) -> Verb:
    """Return the command of an entry.

    Raises:
        Unrepeatable: It cannot be carried out again.
    """
    verb = find(_COMMANDS.get(entry.verb, ""))
    if verb is None:
        raise Unrepeatable(
            _WHY.get(entry.verb, f"{entry.verb} is not a command that makes the same store again")
        )
    return verb


def others_of(entry: LineageEntry) -> dict[str, str]:
    """Return the stores that an entry names besides its parents: their digests by option."""
    if entry.verb == "merge":
        return {}
    named = {name: _digest_in(value) for name, value in entry.options.items()}
    return {name: digest for name, digest in named.items() if digest is not None}


def words_of(
    version: Version,
    parents: Sequence[str],
    find_store: Callable[[str], str],
    *,
    source: str | None = None,
    output: Path | None = None,
) -> list[str]:
    """Return the words after `trajkit` that make a version from its parents.

    Args:
        version: The version; it has an entry.
        parents: Where its parents are.
        find_store: Returns where another store is, by its digest.
        source: Where an export reads, if not a store; None for nothing.
        output: Where the version goes; None for no -o.

    Raises:
        Unrepeatable: The entry is not a command, or does not record all of it.
    """
    entry = version.entry
    assert entry is not None
    verb = verb_of(entry)
    options: dict[str, Any] = {}
    for name, value in entry.options.items():
        if verb.option(name) is None or name in _BARRED:
            raise Unrepeatable(
                f"{name!r} is not an option of `trajkit {verb.name}`: another version of trajkit"
                f" ({entry.trajkit_version}) or another command recorded it"
            )
        digest = _digest_in(value)
        options[name] = value if digest is None else find_store(digest)
        hidden = [key for key, each in value.items() if each is None] if isinstance(value, dict) else []
        if hidden and digest is None:
            raise Unrepeatable(f"the value of --{name} {hidden[0]} is not recorded, as it may be secret")
    if entry.verb == "merge":
        options["stores"] = list(parents)
    elif parents and verb.name not in _WITHOUT_PARENT:
        # it is the first argument that names no other store
        first = (each.name for each in verb.options if each.flag is None and each.name not in options)
        options["source" if verb.name == "export" else next(first)] = parents[0]
    elif source is not None and verb.name == "export":
        options["source"] = source
    if output is not None:
        options["output"] = str(output)
    try:
        words = [*verb.name.split(), *typed(verb, options)]
        if output is not None:
            check(verb, words[len(verb.name.split()) :])
    except Unfit as error:
        raise Unrepeatable(error.message) from error
    return words


def _digest_in(value: Any) -> str | None:
    """The digest of a store that stands for it in the options of an entry; `after` has a time beside it."""
    digest = value["digest"] if isinstance(value, dict) and set(value) == {"digest", "as_of"} else value
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None


def opened(store: Any) -> tuple[str, Manifest]:
    """Return where a store is, and its manifest."""
    place = store_path(store)
    return place, manifest_at(place)
