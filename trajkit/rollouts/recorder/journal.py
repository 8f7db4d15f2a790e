"""Write and read a recorder's journal; each record is on disk before the recorded call returns.

A record is a line of JSON, then as many bytes as its `sizes` give, then a line break. Requests and answers
are stored as they were sent, and parsed when the store is written (`assemble`). A process that is killed
loses only the record that it was writing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit._core.files import refuse_existing, unwritable
from trajkit.errors import StoreError

VERSION = 1
_LOCK_AT = 1 << 40
_RECOVER = "trajkit.Recorder.recover({!r}) writes the store from it, or remove it"


def journal_path(store: Path) -> Path:
    """Return the path of a store's journal: beside it, with `.journal` after its name."""
    return store.with_name(f"{store.name}.journal")


def late_path(store: Path) -> Path:
    """Return the path of the journal of notes on a written store: beside it, with `.late`."""
    return store.with_name(f"{store.name}.late")


class Journal:
    """A journal that is being written. Not thread-safe: the recorder has one lock for all its data.

    Args:
        store: The store that will be written from it.
        facts: Facts for the first record; never a secret.

    Raises:
        StoreError: The store exists, another recorder writes this journal, or a dead recorder left it.
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
            raise unwritable(self.path, error) from error
        self._n_bytes = 0
        self._is_broken = False
        self.n_records = 0
        """Number of whole records, including the first."""
        try:
            _lock(self._file)
            self.append(_first(store, facts))
        except BaseException as error:
            self.close()
            self.path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise unwritable(self.path, error) from error
            raise

    def append(self, header: dict[str, Any], *bodies: bytes) -> None:
        """Write a whole record, or raise and leave the journal unchanged.

        Raises:
            OSError: The disk is full, or the file is gone.
        """
        if self._is_broken:
            raise OSError("the journal ends with a partial record that could not be removed")
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
        """Close the file, which stays. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def append_late(store: Path, facts: dict[str, Any], header: dict[str, Any]) -> None:
    """Append a record about an already written store to its journal of late notes, whole or not at all.

    Args:
        store: The store.
        facts: Facts for the first record.
        header: The record.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
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
    """Reads a journal. Use as a context manager.

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
        """Bytes of a partial record at the end, which the process was writing when it was killed."""

    def places(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield offset and header of every whole record except for the first, in the order written.

        Raises:
            StoreError: The file is not a journal, or of a newer version.
        """
        offset, is_first = 0, True
        while (found := self._header(offset)) is not None:
            header, start = found
            if is_first:
                _check_first(self._path, header)
            else:
                yield offset, header
            is_first = False
            offset = start + sum(header["sizes"]) + 1
        if is_first:
            raise StoreError(f"{self._path} is not a recorder's journal")
        self.n_bytes_unread = self._n_bytes - offset

    def record(self, offset: int) -> tuple[dict[str, Any], list[bytes]]:
        """Return header and bytes of the record at an offset."""
        found = self._header(offset)
        if found is None:
            raise StoreError(f"{self._path} has no record at byte {offset}")
        header, start = found
        self._file.seek(start)
        return header, [self._file.read(size) for size in header["sizes"]]

    def _header(self, offset: int) -> tuple[dict[str, Any], int] | None:
        """Return a header and the start of its bytes; None if no whole record begins."""
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
    """Lock and return the journal that a dead recorder left, for the time of a block.

    Raises:
        StoreError: There is no journal, or its recorder still writes it.
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
                f"{path} is the journal of a recorder that was not closed",
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
    """Lock the file until it is closed or the process ends.

    Args:
        file: Its descriptor.
        waits: Wait for another process that holds the lock.

    Raises:
        OSError: Another process holds the lock.
    """
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, _LOCK_AT, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_END)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
