"""Remove passwords in URLs from the command line that `ps` shows of this process.

The environment and `trajkit.toml` are better places for them: others can see them until this has run.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

_PASSWORD = re.compile(rb"://[^/?#\s\0:@]*:([^/?#\s\0]+)@|[?&]password=([^&#\s\0]+)", re.IGNORECASE)
_ARG_START, _ARG_END = 48, 49  # proc(5), /proc/PID/stat, counted from 1


def hide_passwords() -> None:
    """Overwrite the passwords of URLs in this process's own command line with asterisks.

    Linux keeps it in the memory of the process; on other systems nothing happens.
    """
    if sys.platform != "linux":
        return
    try:
        shown = Path("/proc/self/cmdline").read_bytes()
        found = list(_PASSWORD.finditer(shown))
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return
    start, stop = (int(fields[number - 3]) for number in (_ARG_START, _ARG_END))
    # only if the memory is what the system shows: not in a process that changed its title
    if not found or not start or ctypes.string_at(start, stop - start) != shown:
        return
    for match in found:
        first, last = match.span(1 if match[1] is not None else 2)
        ctypes.memset(start + first, ord("*"), last - first)
