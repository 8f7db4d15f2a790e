"""The machine: Python, processor, memory, disk, a GPU."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trajkit.commands.checkup.check import Check, broken, note, well

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
"""What a container may use, if there is one."""
_AMD = Path("/dev/kfd")
_LITTLE_DISK_BYTES = 2_000_000_000
_LITTLE_MEMORY_BYTES = 2_000_000_000
_ASKING_S = 10.0
_LOADING_S = 60.0
"""torch takes long to load on a slow disk."""
_CUDA = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"


def machine() -> Iterator[Check]:
    """Python, the system, threads, memory, disk, GPUs."""
    version = platform.python_version()
    where = f"in {sys.prefix}" if sys.prefix != sys.base_prefix else f"{sys.executable}, no environment"
    yield well("Python", f"{version}  {where}", version=version, executable=sys.executable)
    yield well("system", f"{platform.system()} {platform.release()} {platform.machine()}")
    yield _processor()
    yield _memory()
    yield _disk()
    yield from _gpu()


def _processor() -> Check:
    n_all = os.cpu_count() or 1
    # https://docs.python.org/3/library/os.html#os.sched_getaffinity: Linux has it, macOS and Windows do not
    n_ours = len(os.sched_getaffinity(0)) if sys.platform == "linux" else n_all
    limit, _, period = (_read(_GROUP / "cpu.max") or "max").partition(" ")  # of the container
    is_limited = limit.isdecimal() and period.strip().isdecimal()
    n_usable = min(n_ours, int(limit) / int(period)) if is_limited else n_ours
    said = f"{n_usable:g} {'thread' if n_usable == 1 else 'threads'}"
    return well(
        "processor",
        said if n_usable == n_all else f"{said} of {n_all} may be used here",
        n_threads=n_all,
        n_usable=n_usable,
    )


def _memory() -> Check:
    total, available = memory_bytes()
    if total is None:
        return well("memory", "unknown on this system")
    said = f"{_gigabytes(total)}" + (f", {_gigabytes(available)} free" if available is not None else "")
    facts = {"n_bytes": total, "n_available_bytes": available}
    if total < _LITTLE_MEMORY_BYTES:
        return note("memory", f"{said}: large exports and training runs need more", None, **facts)
    return well("memory", said, **facts)


def memory_bytes() -> tuple[int | None, int | None]:
    """Total and free memory, in bytes, of the container if that has less; None when unknown."""
    if _MEMINFO.is_file():
        lines = (line.partition(":") for line in _MEMINFO.read_text(encoding="ascii").splitlines())
        found = {name: int(rest.split()[0]) * 1024 for name, _, rest in lines}
        total, available = found["MemTotal"], found.get("MemAvailable")
        limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
        if limit and limit.isdecimal() and int(limit) < total:
            total = int(limit)
            available = max(0, total - int(used)) if used and used.isdecimal() else None
        return total, available
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    except (AttributeError, ValueError, OSError):  # Windows
        return None, None


def _disk() -> Check:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if not os.access(here, os.W_OK):
        return broken(
            "disk", f"{here} cannot be written to", "work in a folder of your own", n_free_bytes=free
        )
    if free < _LITTLE_DISK_BYTES:
        return note(
            "disk", f"{_gigabytes(free)} free in {here}", "make room before an export", n_free_bytes=free
        )
    return well("disk", f"{_gigabytes(free)} free in {here}", n_free_bytes=free)


def _gpu() -> Iterator[Check]:
    if (program := shutil.which("nvidia-smi")) is not None:
        yield from _nvidia(program)
    elif platform.system() == "Darwin" and platform.machine() == "arm64":
        yield well("GPU", "Apple's, which torch calls mps", kind="mps")
    elif _AMD.exists():
        yield well("GPU", "AMD's; torch must be one for ROCm", kind="rocm")
    else:
        yield well("GPU", "none: models run and train on the CPU", kind=None)


def _nvidia(program: str) -> Iterator[Check]:
    asked = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_ASKING_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        yield broken("GPU", f"nvidia-smi does not answer within {_ASKING_S:g} s", "restart the machine")
        return
    cards = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not cards:
        said = (done.stdout + done.stderr).strip().splitlines()
        yield note("GPU", f"NVIDIA's driver shows none: {said[-1] if said else 'it says nothing'}")
        return
    for card in cards:
        yield well("GPU", card, kind="cuda")
    if find_spec("torch") is not None:
        yield _torch()


def _torch() -> Check:
    """Whether torch sees the GPU, checked in its own process: it takes seconds and much memory."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CUDA], capture_output=True, text=True, timeout=_LOADING_S, check=False
        )
    except subprocess.TimeoutExpired:
        return broken("torch", f"it does not load within {_LOADING_S:g} s")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return broken("torch", said[-1] if said else "it does not load", "pip install -U 'trajkit[local]'")
    version, cuda, sees = done.stdout.split()[-3:]
    if cuda == "None":
        todo = "install torch with CUDA: https://pytorch.org/get-started/locally"
        return note("torch", f"{version} was built without CUDA and uses the CPU", todo)
    if sees != "True":
        return broken("torch", f"{version} for CUDA {cuda} sees no GPU", "its CUDA must fit the driver")
    return well("torch", f"{version} sees it, with CUDA {cuda}", version=version, cuda=cuda)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB"
