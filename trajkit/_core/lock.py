"""A lock on a file that ends with the process that holds it, however it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trajkit.errors import StoreError


@contextlib.contextmanager
def locked(path: Path) -> Iterator[str | None]:
    """Hold a lock during a block; yield None, or its present holder, such as `process 4711`."""
    with path.open("a+b") as file:
        if not _try(file.fileno()):
            file.seek(0)
            pid = file.read(20).decode("ascii", "replace").strip()
            yield f"process {pid}" if pid.isdecimal() else "another process"
            return
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
        file.flush()
        yield None


@contextlib.contextmanager
def waiting(path: Path, *, patience_s: float = 60) -> Iterator[None]:
    """Hold a lock during a block, which must be short; wait while another process holds it.

    Raises:
        StoreError: It is still held after `patience_s`.
    """
    last = time.monotonic() + patience_s
    while True:
        with locked(path) as other:
            if other is None:
                yield
                return
        if time.monotonic() > last:
            raise StoreError(f"{path} is held by {other}", hint="try again when it has ended")
        time.sleep(0.01)


if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 20
    """The locked byte: it need not exist, and its value is not read."""

    def _try(descriptor: int) -> bool:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
