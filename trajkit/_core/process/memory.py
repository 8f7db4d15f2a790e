"""Set how libraries get memory from the system, in a process that belongs to trajkit."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.abc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_WISHES = {
    # Arrow's default allocator keeps freed memory; the system's returns large blocks at once
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # one arena for all of DuckDB's threads: separate ones would keep memory that others could use;
    # and freed memory is returned soon, by default it takes ten seconds
    "DUCKDB_JE_MALLOC_CONF": "narenas:1,dirty_decay_ms:200,muzzy_decay_ms:0",
    # numpy only passes numbers on here; threads for its matrices would wait busily
    "OPENBLAS_NUM_THREADS": "1",
}
_ours: set[str] = set()  # the settings that the environment did not have yet
_is_own_process = False
_MALLOC_WISHES = {
    # name in the environment: its number in glibc's malloc.h, and the value
    "MALLOC_ARENA_MAX": (-8, 2),  # by default eight arenas per core
    # batches come one after another: each would get new pages from the system, which takes longer than
    # processing them
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 << 20),
    "MALLOC_TRIM_THRESHOLD_": (-1, 32 << 20),
}


def prefer_little_memory() -> None:
    """Ask Arrow and DuckDB to share and return memory: a quarter less at the peak of an export.

    It must be called before either is imported, and only in a process that belongs to trajkit alone: the
    command line. Settings that the environment already has are kept.
    """
    global _is_own_process
    _is_own_process = True
    _ours.update(_WISHES.keys() - os.environ.keys())
    os.environ.update({name: _WISHES[name] for name in _ours})
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without it (musl) needs no setting
            for name, (number, value) in _MALLOC_WISHES.items():
                if name not in os.environ:
                    ctypes.CDLL(None).mallopt(number, value)


def is_own_process() -> bool:
    """Whether the process is a trajkit command line, which may be ended as a whole."""
    return _is_own_process


def half_of_the_machine() -> int:
    """Return half of the machine's memory in bytes; 4 GB if it is unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return 4_000_000_000


@contextlib.contextmanager
def at_most(n_bytes: int) -> Iterator[None]:
    """Limit the memory in a block to this much more than the process has now.

    DuckDB's own limit does not count the texts that functions make. An allocation beyond this one fails, and
    DuckDB and Python raise an error. Only on Linux, and only in a trajkit command line; elsewhere this
    does nothing.
    """
    if not _is_own_process or sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    n_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = n_pages * resource.getpagesize() + n_bytes
    if before[0] == resource.RLIM_INFINITY or limit < before[0]:
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class _WithoutPandas(importlib.abc.MetaPathFinder):
    """Hides an installed pandas."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def leave_pandas() -> None:
    """Keep pyarrow from importing an installed pandas when it first gets a Python object.

    It would only check whether the object is one of pandas, at a cost of 0.2 s and 30 MB. A later call that
    needs pandas, such as `to_pandas`, gets it. It is called after `prefer_little_memory`, is for the command
    line like that, and elsewhere does nothing.
    """
    if not _ours or "pandas" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Undo the setting for Arrow in a block that allocates memory of the same sizes again and again.

    The system would give new memory each time, and the first use of every page takes longer than the work in
    it. Like `prefer_little_memory` it is for the command line, and keeps settings of the environment.
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
