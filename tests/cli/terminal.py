"""The command line in a pseudo-terminal of a given size, as a person sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
import threading
from pathlib import Path

from tests import warm

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def seen(arguments: list[str], *, columns: int, lines: int = 24, folder: Path, **environment: str) -> str:
    """Everything that a command prints on a terminal, both streams, with its escape codes."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    inherited = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    printed = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux ends a pseudo-terminal with an error
            while piece := os.read(outer, 65536):
                printed.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    name = os.ttyname(inner)
    given = {**inherited, "TERM": "xterm-256color", **environment}
    warm.Forked(None, arguments, folder, given, (name, name, name)).wait()
    os.close(inner)
    reader.join(30)
    os.close(outer)
    return printed.decode().replace("\r", "")


def plain(text: str) -> str:
    """The same without escape codes."""
    return _ESCAPE.sub("", text)
