"""The journal of a store that is being recorded: what happened, on disk before the call returns.

A record is a line of JSON, then as many bytes as its `sizes` say, then a line break. Requests and answers are
kept as they went over the wire; what they mean is read when the store is written (`assemble`). A process that
is killed loses the record that it was writing, and nothing before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import refuse_existing
from trajkit.errors import StoreError

VERSION = 1
_LOCK_AT = 1 << 40
_RECOVER = "trajkit.Recorder.recover({!r}) writes the store from it, or remove it"


def journal_path(store: Path) -> Path:
    """The journal of a store: beside it, with `.journal` after its name."""
    return store.with_name(f"{store.name}.journal")


def late_path(store: Path) -> Path:
    """The journal of what was said of a store's episodes when it was written: beside it, with `.late`."""
    return store.with_name(f"{store.name}.late")


class Record(NamedTuple):
    """One record as it is read back."""

    header: dict[str, Any]
    bodies: tuple[bytes, ...] = ()
    """Its bytes; empty where only the header was asked for."""


class Place(NamedTuple):
    """Where a record is, and what it says without its bytes."""

    offset: int
    header: dict[str, Any]


class Journal:
    """A journal that is being written. Not safe for threads: the recorder has one lock for all it keeps.

    Args:
        store: The store that will be written from it.
        facts: What the first record says of the recording; never a secret.

    Raises:
        StoreError: The store exists, another recorder writes this journal, or one that died left it.
    """

    def __init__(self, store: Path, facts: dict[str, Any]) -> None:
        self.path = journal_path(store)
        refuse_existing(store)
        try:
            store.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, _flags(os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND), 0o600)
        except FileExistsError:
            raise _in_the_way(store, self.path) from None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error
        self._n_bytes = 0
        self._is_broken = False
        self.n_records = 0
        """Whole records in it, the first included."""
        try:
            _lock(self._file)
            self.append(_first(store, facts))
        except BaseException as error:
            self.close()
            self.path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from error
            raise

    def append(self, header: dict[str, Any], *bodies: bytes) -> None:
        """Write a record whole, or raise and leave the journal as it was.

        Raises:
            OSError: There is no room, or the file is gone.
        """
        if self._is_broken:
            raise OSError("the journal ends in half a record that could not be removed")
        data = _spelled(header, *bodies)
        try:
            _write(self._file, data)
        except BaseException:
            try:
                os.ftruncate(self._file, self._n_bytes)
            except OSError:
                self._is_broken = True
            raise
        self._n_bytes += len(data)
        self.n_records += 1

    def close(self) -> None:
        """Let go of the file, which stays. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def append_late(store: Path, facts: dict[str, Any], header: dict[str, Any]) -> None:
    """Write a record about a store that is written to its journal of such, whole or not at all.

    Args:
        store: The store.
        facts: What the first record says.
        header: The record.

    Raises:
        OSError: There is no room, or the folder cannot be written.
    """
    file = os.open(late_path(store), _flags(os.O_CREAT | os.O_RDWR | os.O_APPEND), 0o600)
    try:
        _lock(file, waits=True)
        n_bytes = os.fstat(file).st_size
        first = b"" if n_bytes else _spelled(_first(store, facts))
        try:
            _write(file, first + _spelled(header))
        except BaseException:
            os.ftruncate(file, n_bytes)
            raise
    finally:
        os.close(file)


class JournalReader:
    """Reads a journal that nobody writes any more. Use as a context manager.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
        self._n_bytes = os.fstat(self._file.fileno()).st_size
        self.n_bytes_unread = 0
        """Bytes at the end that are no whole record: what was being written when the process was killed."""

    def places(self) -> Iterator[Place]:
        """Every whole record but the first, in the order written.

        Raises:
            StoreError: The file is no journal, or of a newer version.
        """
        offset, is_first = 0, True
        while (found := self._header(offset)) is not None:
            header, start = found
            if is_first:
                _check_first(self._path, header)
            else:
                yield Place(offset, header)
            is_first = False
            offset = start + sum(header["sizes"]) + 1
        if is_first:
            raise StoreError(f"{self._path} is not a recorder's journal")
        self.n_bytes_unread = self._n_bytes - offset

    def record(self, offset: int) -> Record:
        """The record that begins here, whole."""
        found = self._header(offset)
        if found is None:
            raise StoreError(f"{self._path} has no record at byte {offset}")
        header, start = found
        self._file.seek(start)
        return Record(header, tuple(self._file.read(size) for size in header["sizes"]))

    def _header(self, offset: int) -> tuple[dict[str, Any], int] | None:
        """A header and where its bytes begin; None where no whole record begins."""
        self._file.seek(offset)
        line = self._file.readline()
        try:
            header = json.loads(line)
            n_bytes = sum(header["sizes"])
        except (ValueError, TypeError, KeyError):
            return None
        start = offset + len(line)
        return None if start + n_bytes + 1 > self._n_bytes else (header, start)

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextlib.contextmanager
def abandoned(store: Path) -> Iterator[Path]:
    """The journal that a recorder left which is no more, locked while the block runs.

    Raises:
        StoreError: There is none, or its recorder still writes it.
    """
    path = journal_path(store)
    try:
        file = os.open(path, _flags(os.O_RDWR))
    except OSError as error:
        raise StoreError(f"there is no journal {path}: {error.strerror or error}") from error
    try:
        try:
            _lock(file)
        except OSError:
            raise _in_use(store, path) from None
        yield path
    finally:
        os.close(file)


def _in_the_way(store: Path, path: Path) -> StoreError:
    try:
        with abandoned(store):
            return StoreError(
                f"{path} is what a recorder left that did not come to its end",
                hint=_RECOVER.format(str(store)),
            )
    except StoreError as error:
        return error


def _in_use(store: Path, path: Path) -> StoreError:
    return StoreError(
        f"{store} is being recorded: another recorder writes {path}",
        hint="close() that one first, or record into another store",
    )


def _first(store: Path, facts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "recorder", "version": VERSION, "store": store.name, **facts}


def _spelled(header: dict[str, Any], *bodies: bytes) -> bytes:
    line = json.dumps({**header, "sizes": [len(body) for body in bodies]}, separators=(",", ":"))
    return b"".join((line.encode("ascii"), b"\n", *bodies, b"\n"))


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _check_first(path: Path, header: dict[str, Any]) -> None:
    if header.get("kind") != "recorder" or not isinstance(header.get("version"), int):
        raise StoreError(f"{path} is not a recorder's journal")
    if header["version"] > VERSION:
        raise StoreError(
            f"{path} was written by a newer trajkit (journal version {header['version']})",
            hint="pip install -U trajkit",
        )


def _flags(flags: int) -> int:
    return flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def _lock(file: int, *, waits: bool = False) -> None:
    """Take the file until it is closed or the process is gone.

    Args:
        file: Its number.
        waits: Wait for another one that has it.

    Raises:
        OSError: Another one has it.
    """
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, _LOCK_AT, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_END)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
