"""Programs of Node that some tests talk to: installed once, at the versions of tests/node, into `.node/`."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_FILES = ("package.json", "package-lock.json")
FOLDER = _HERE.parent / ".node"
_NODE = 20
_START_S = 90.0


@functools.cache
def program(name: str) -> Path:
    """A program by its name; where Node is missing or nothing can be fetched the test is skipped."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("Node is not here: `make system` installs it where it may")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < _NODE:
        pytest.skip(f"Node {version} is too old: {_NODE} or newer is wanted")
    wanted = "".join((_HERE / "node" / file).read_text(encoding="utf-8") for file in _FILES)
    done = FOLDER / "installed"
    if not done.is_file() or done.read_text(encoding="utf-8") != wanted:
        FOLDER.mkdir(exist_ok=True)
        for file in _FILES:
            shutil.copy(_HERE / "node" / file, FOLDER)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        told = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=280)
        if told.returncode != 0:
            pytest.skip(f"npm cannot install what tests/node lists: {told.stderr.strip()[-300:]}")
        done.write_text(wanted, encoding="utf-8")
    return FOLDER / "node_modules" / ".bin" / name


def free_port() -> int:
    """A port on loopback that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[str]:
    """The address of a program that listens on a port, for the time of a block."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_S
        while not _listens(port):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
