"""The stores of the folder: are they whole, and what did a killed command leave behind?"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trajkit._core.sending import left_unsent
from trajkit._core.settings import Project, project, remembered
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.errors import ConfigError, TrajkitError

_LEFT_OVER = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp")
"""As `_files.temporary_beside` names what is being written."""


def stores() -> Iterator[Check]:
    """Every store in the folder of stores, the last one that was written, and what is half-written."""
    folder = _stores_folder()
    yield from _all_in(folder)
    last = remembered("last_store")
    path = last.get("path") if isinstance(last, dict) else None
    if isinstance(path, str) and not Path(path).exists():
        yield note("last store", f"{path} is gone", "name a STORE in the next command")
    for each in (Path(), folder, Path("runs"), Path(tempfile.gettempdir())):
        yield from _left_over(each)
    for goal in left_unsent():
        said = f"{goal} was being sent when the command was killed"
        yield note("left over", said, "the same command again puts it right", path=goal)


def _stores_folder() -> Path:
    try:
        return Path(project().stores)
    except ConfigError:  # what is wrong with the file is told as a setting
        return Path(Project().stores)


def _all_in(folder: Path) -> Iterator[Check]:
    from trajkit.store.layout import MANIFEST_NAME
    from trajkit.store.reader import open_store

    whole, n_bytes = 0, 0
    found = [
        path.parent for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/{MANIFEST_NAME}"))
    ]
    for path in found:
        if _LEFT_OVER.fullmatch(path.name) or _LEFT_OVER.fullmatch(path.parent.name):
            continue
        try:
            store = open_store(path)
        except TrajkitError as error:
            yield broken("store", error.message, error.hint, path=str(path))
            continue
        whole += 1
        n_bytes += sum(part.n_bytes for part in store.manifest.parts)
    if whole:
        said = f"{whole:,} in {folder}, {n_bytes / 1e6:,.1f} MB, every part there"
        yield well("stores", said, n_stores=whole, n_bytes=n_bytes)
    elif not found:
        yield note("stores", f"none in {folder}", "trajkit info sample:babyai shows one that comes along")


def _left_over(folder: Path) -> Iterator[Check]:
    """What a command that was killed had not finished; what a live one writes is left out."""
    from trajkit.stack.process import birth_of

    if sys.platform == "win32" or not folder.is_dir():  # there a process cannot be asked for by its id alone
        return
    for path in sorted(folder.glob(".*.tmp")):
        name = _LEFT_OVER.fullmatch(path.name)
        if name is not None and birth_of(int(name["pid"])) is None:
            said = f"{path} is what a killed command left of {name['name']}"
            yield note("left over", said, f"rm -r {shlex.quote(str(path))}", path=str(path))
