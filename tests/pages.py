"""The console blocks of a page: what is typed after `$` is run, and must print what stands under it."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests import warm

BIN = Path(sys.executable).parent
_SHELL = re.compile(r"[|&;<>$`*?{#~]")
"""What a shell would do something about, were it not quoted."""
_SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Shown(NamedTuple):
    """A command in a console block, and what stands under it."""

    command: str
    output: str


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def console(page: str) -> list[Shown]:
    """Every command of the console blocks, in order."""
    shown = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.replace("\\\n", "").partition("\n")
            shown.append(Shown(command, output))
    return shown


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell would, both streams together as on a terminal."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **environment}
    if command.startswith("trajkit ") and not _SHELL.search(command):
        return warm.trajkit(shlex.split(command)[1:], folder, environment, is_together=True)
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def printed(page: str, folder: Path, **environment: str) -> list[Shown]:
    """Run every command in one folder; each must end well and print what is shown, `...` for what differs.

    Returns:
        The commands, with what they printed.
    """
    found = []
    for command, output in console(page):
        done = run(command, folder, **environment)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        is_same = doctest.OutputChecker().check_output(output, done.stdout, _SAME)
        assert is_same, f"$ {command}\nshown:\n{output}\nprinted:\n{done.stdout}"
        found.append(Shown(command, done.stdout))
    return found
