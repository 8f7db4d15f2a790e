"""How the libraries that do the work get memory from the system, for a process that is trajkit's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

_WISHES = {
    # Arrow's default allocator keeps what is freed; the system's gives large blocks back at once
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # one arena for all of DuckDB's threads: each of its own would keep what the others could use
    "DUCKDB_JE_MALLOC_CONF": "narenas:1",
    # numpy only passes numbers on here; threads for its matrices would wait in a loop
    "OPENBLAS_NUM_THREADS": "1",
}
_M_ARENA_MAX, _ARENAS = -8, 2  # glibc's malloc.h; by default it is eight arenas for every core


def prefer_little_memory() -> None:
    """Ask Arrow and DuckDB to share and return memory: a quarter less at the peak of an export.

    It must come before either is imported, and is for a process that belongs to trajkit alone: the command
    line. What the environment already says is left as it is.
    """
    for name, value in _WISHES.items():
        os.environ.setdefault(name, value)
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):  # a C library without it (musl) needs no telling
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
