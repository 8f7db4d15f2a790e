"""Open a store and verify that it matches its manifest."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from pydantic import ValidationError

from trajkit._core.address import Address, fetch, place_of, reaching
from trajkit._core.files import sha256_file
from trajkit._core.outside import check_size, json_from_outside, problem_of, text_from_outside
from trajkit._core.samples import SAMPLE_PREFIX, samples
from trajkit.errors import StoreError
from trajkit.schema import STORE_VERSION, Manifest, Metric, Part
from trajkit.store.digest import ContentHashes, elements, ordered_batches, store_digest
from trajkit.store.engine import connect, first_line, interruptible, scan
from trajkit.store.layout import MANIFEST_NAME, TABLES
from trajkit.store.writing.part import refuse_other_columns, refuse_twice

_PART_PATH = re.compile(r"(episodes|steps|feedback)/part-[0-9]+\.parquet")
_DAMAGED = "the store is damaged: copy or build it again"
_MOST_NAMED = 5
LAST_OPENED: deque[Store] = deque(maxlen=16)
"""The stores that were opened last, for `damage.last_damage`. A command starts with none."""
_HASHING = min(4, os.cpu_count() or 1)
"""Number of parts that are hashed side by side."""


@dataclass(frozen=True)
class Store:
    """A folder of Parquet files with its manifest: sizes are checked, checksums are not (`verify`)."""

    path: Path
    """The folder, absolute."""
    manifest: Manifest
    """Its manifest."""

    def parts(self, table: str) -> list[Path]:
        """Return the Parquet files of a table, in the order in which they were written."""
        return [self.path / part.path for part in self.manifest.parts if part.path.startswith(f"{table}/")]


def open_store(path: str | Path) -> Store:
    """Open a store, and check that every part exists and has its size.

    Args:
        path: The folder, its address, or `sample:NAME` for a store that comes with trajkit, such as
            `sample:babyai`.

    Raises:
        StoreError: It is not a store, has a newer version, or a part is missing or of another size.
    """
    folder = _sample(str(path)) if str(path).startswith(SAMPLE_PREFIX) else place_of(path)
    if not folder.is_dir():
        raise StoreError(
            f"there is no store at {path}: not a folder", hint="`trajkit export` and `rollout -o` make one"
        )
    folder = folder.resolve()
    store = Store(folder, read_manifest(folder / MANIFEST_NAME))
    sizes = folder.sizes() if isinstance(folder, Address) else None
    for part in store.manifest.parts:
        check_size(folder, part.path, part.n_bytes, listed=sizes, hint=_DAMAGED)
    for table in TABLES:
        if not store.parts(table):
            raise StoreError(f"{folder / MANIFEST_NAME} lists no part of {table}", hint=_DAMAGED)
        counted = getattr(store.manifest.counts, f"n_{table}")
        listed = sum(p.n_rows for p in store.manifest.parts if p.path.startswith(f"{table}/"))
        if counted != listed:
            raise StoreError(
                f"{folder / MANIFEST_NAME} counts {counted} {table}; its parts have {listed}", hint=_DAMAGED
            )
    LAST_OPENED.append(store)
    return store


def verify(store: Store, *, deep: bool = False) -> None:
    """Verify that every byte is as it was written.

    A part with the same size and modification time as in an earlier call in this process is not read again.
    Of a store at an address only the footers and the ids are read, unless `deep`.
    Parts must also have the columns of the layout, and episodes unique ids.

    Args:
        store: The store.
        deep: Also check every value and recompute the content digest, which reads and parses everything.

    Raises:
        StoreError: A part is missing or changed, a value is invalid, or the content has another digest; the
            message names it.
    """
    with verifying(store) as verified:
        verified()
    if deep:
        from trajkit.store.damage import damage

        if isinstance(store.path, Address):
            for part in store.manifest.parts:
                with reaching(store.path / part.path):
                    _refuse_sum(store.path / part.path, sha256_file(store.path / part.path), part)

        if (broken := damage(store)) is not None:
            raise broken
        found = recomputed_digest(store)
        if found != store.manifest.digest:
            raise StoreError(
                f"{store.path} has the content digest {found}; its manifest says {store.manifest.digest}",
                hint=_DAMAGED,
            )


@contextlib.contextmanager
def verifying(store: Store) -> Iterator[Callable[[], None]]:
    """Run `verify` in parallel with a block.

    The block must call the yielded function before it uses its results; at the end of the block it is called
    anyway. An error of the block is raised only if no damage explains it.

    Args:
        store: The store.

    Returns:
        A function that waits, and raises if the store was changed.

    Raises:
        StoreError: A part is missing or changed.
    """
    pool = ThreadPoolExecutor(_HASHING)  # hashing releases the GIL
    try:
        found = [pool.submit(_verify_part, store, part) for part in store.manifest.parts]
        found.append(pool.submit(_refuse_ids, store))  # last: a damaged part is reported first

        def verified() -> None:
            for each in found:
                each.result()  # raises the error of the first damaged part, in their order

        try:
            yield verified
        except Exception:
            verified()
            raise
        verified()
    finally:
        pool.shutdown(cancel_futures=True)


def recomputed_digest(store: Store) -> str:
    """Compute the content digest from the rows, ignoring the manifest and `content_hash`."""
    hashes = ContentHashes()
    try:
        with connect() as connection, interruptible(connection):
            for table in TABLES:
                for part in store.parts(table):  # part by part, because sorting takes memory
                    select = f"SELECT * FROM {scan([part])}"
                    for batch in ordered_batches(connection, table, store.manifest.metrics, select):
                        hashes.update(batch, elements(table))
            connection.register("content_hash", hashes.table())
            return store_digest(connection, "content_hash")
    except duckdb.Error as error:
        raise StoreError(f"{store.path} cannot be read: {first_line(error)}", hint=_DAMAGED) from error


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a store, whose parts need not be there.

    Args:
        path: The file `manifest.json`.

    Raises:
        StoreError: There is none, it cannot be read, or it is of a newer version.
    """
    if not (path.exists() or path.is_symlink()):
        inner = [] if isinstance(path, Address) else sorted(path.parent.glob(f"*/{MANIFEST_NAME}"))
        names = ", ".join(each.parent.name for each in inner[:_MOST_NAMED])
        raise StoreError(
            f"{path.parent} is not a store: it has no {MANIFEST_NAME}",
            hint=f"it holds {names}" if names else "a run that was killed leaves none",
        )
    text = text_from_outside(path, within=path.parent, error=StoreError)
    _refuse_newer(path, json_from_outside(text, where=str(path), error=StoreError))
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise StoreError(f"{path}: {problem_of(error)}", hint=_DAMAGED) from error
    for part in manifest.parts:
        if not _PART_PATH.fullmatch(part.path):
            raise StoreError(f"{path}: {part.path!r} cannot be a part of a store", hint=_DAMAGED)
    return manifest


def _refuse_newer(path: Path, value: Any) -> None:
    version = value.get("format_version") if isinstance(value, dict) else None
    if isinstance(version, int) and version > STORE_VERSION:
        raise StoreError(
            f"{path.parent} was written by store version {version}; this trajkit reads up to {STORE_VERSION}",
            hint="pip install -U trajkit",
        )


def _verify_part(store: Store, part: Part) -> None:
    path = store.path / part.path
    if not isinstance(path, Address):
        check_size(store.path, part.path, part.n_bytes, hint=_DAMAGED)
        status = path.stat()
        _refuse_sum(path, _sha256(path, status.st_size, status.st_mtime_ns, status.st_ino), part)
    _refuse_columns(path, part.sha256, part.n_rows, store.manifest.metrics)


def _refuse_sum(path: Path, found: str, part: Part) -> None:
    if found != part.sha256:
        raise StoreError(f"{path} is not the file that was written: its sha256 differs", hint=_DAMAGED)


def copy_part(store: Store, part: Part, goal: Path, *, is_linked: bool = False) -> None:
    """Copy a part to a new local file; its checksum must have been verified, or it comes from an address.

    Args:
        store: The store.
        part: One of its parts.
        goal: The new file.
        is_linked: Link the file where the disk can, for a store that is removed afterwards.

    Raises:
        StoreError: The file at an address is not the one that was written.
    """
    path = store.path / part.path
    if isinstance(path, Address):
        _refuse_sum(path, fetch(path, goal), part)
        return
    if is_linked:
        with contextlib.suppress(OSError):
            os.link(path, goal)
            return
    shutil.copyfile(path, goal)


def _refuse_ids(store: Store) -> None:
    sums = tuple(part.sha256 for part in store.manifest.parts if part.path.startswith("episodes/"))
    refuse_twice(tuple(store.parts("episodes")), sums)


@functools.lru_cache(maxsize=4096)
def _refuse_columns(path: Path, sha256: str, n_rows: int, metrics: tuple[Metric, ...]) -> None:
    refuse_other_columns(path, path.parent.name, metrics, n_rows)


@functools.lru_cache(maxsize=4096)
def _sha256(path: Path, size: int, changed_ns: int, inode: int) -> str:
    return sha256_file(path)


def _sample(name: str) -> Path:
    wanted = name.removeprefix(SAMPLE_PREFIX)
    known = samples(MANIFEST_NAME)
    if wanted not in known:
        listed = ", ".join(f"{SAMPLE_PREFIX}{other}" for other in sorted(known)) or "none is installed"
        raise StoreError(f"there is no sample {wanted!r}", hint=f"samples: {listed}")
    return known[wanted]
