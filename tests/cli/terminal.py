"""The command line in a pseudo-terminal of a given size, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def seen(arguments: list[str], *, columns: int, lines: int = 24, folder: Path, **environment: str) -> str:
    """Everything that a command prints on a terminal, both streams, with its escape codes."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    inherited = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "trajkit", *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=folder,
        env={**inherited, "TERM": "xterm-256color", **environment},
    )
    os.close(inner)
    printed = b""
    while True:
        try:
            piece = os.read(outer, 65536)
        except OSError:  # Linux ends a pseudo-terminal with an error
            break
        if not piece:
            break
        printed += piece
    os.close(outer)
    process.wait(30)
    return printed.decode().replace("\r", "")


def plain(text: str) -> str:
    """The same without escape codes."""
    return _ESCAPE.sub("", text)
