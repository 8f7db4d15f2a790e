"""How the libraries that do the work get memory from the system, for a process that is trajkit's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

_WISHES = {
    # Arrow's default allocator keeps what is freed; the system's gives large blocks back at once
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # one arena for all of DuckDB's threads: each of its own would keep what the others could use
    "DUCKDB_JE_MALLOC_CONF": "narenas:1",
    # numpy only passes numbers on here; threads for its matrices would wait in a loop
    "OPENBLAS_NUM_THREADS": "1",
}
_ours: set[str] = set()  # the wishes that the environment did not have yet
_M_ARENA_MAX, _ARENAS = -8, 2  # glibc's malloc.h; by default it is eight arenas for every core


def prefer_little_memory() -> None:
    """Ask Arrow and DuckDB to share and return memory: a quarter less at the peak of an export.

    It must come before either is imported, and is for a process that belongs to trajkit alone: the command
    line. What the environment already says is left as it is.
    """
    _ours.update(_WISHES.keys() - os.environ.keys())
    os.environ.update({name: _WISHES[name] for name in _ours})
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):  # a C library without it (musl) needs no telling
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Take back the wish for Arrow in a block that wants memory of the same sizes again and again.

    It would come from the system anew each time, and the first use of every page takes longer than what is
    done there. Like `prefer_little_memory` it is for the command line, and leaves what the environment says.
    """
    import pyarrow as pa

    if "ARROW_DEFAULT_MEMORY_POOL" not in _ours or "mimalloc" not in pa.supported_memory_backends():
        yield
        return
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
