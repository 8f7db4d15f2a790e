"""Write files that are either whole or absent: a temporary file beside the goal, then a rename."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit._core.address import Address
from trajkit._core.sending import publish, refuse_taken, send
from trajkit.errors import StoreError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PIECE = 1 << 16


class GrowingFile(io.BufferedWriter):
    """A new file that splits large writes: ext4 is then five times as fast (Linux 6.18).

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))

    def write(self, data: Buffer, /) -> int:
        """Append bytes, and return their number."""
        whole = memoryview(data).cast("B")
        for begin in range(0, len(whole), _PIECE):
            super().write(whole[begin : begin + _PIECE])
        return len(whole)


def sha256_file(path: Path) -> str:
    """Return the hex sha256 of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def temporary_beside(goal: Path) -> Path:
    """Return an unused name in the goal's own folder, so that a rename stays on one file system.

    For an address it is in the system's temporary folder.
    """
    goal = Path(tempfile.gettempdir()) / goal.name if isinstance(goal, Address) else goal
    return goal.with_name(f".{goal.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def settle(built: Path, goal: Path) -> None:
    """Give a complete file or folder its name: rename it, or send it if `goal` is an address."""
    if isinstance(goal, Address):
        send(built, goal)
    else:
        built.replace(goal)


def unwritable(goal: Path, error: OSError) -> StoreError:
    """Return the error for a file or folder that cannot be made."""
    return StoreError(f"{goal} cannot be written: {_in_the_way(goal) or error.strerror or error}")


def _in_the_way(goal: Path) -> str:
    parents = () if isinstance(goal, Address) else goal.parents
    # unlike those of Path these never raise
    files = [each for each in parents if os.path.exists(each) and not os.path.isdir(each)]  # noqa: PTH110, PTH112
    return f"{files[0]} is not a folder" if files else ""


def make_parent(goal: Path) -> None:
    """Make the folder that a file or folder goes into; an address needs none.

    Raises:
        StoreError: It cannot be made.
    """
    if isinstance(goal, Address):
        return
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(goal, error) from error


@contextlib.contextmanager
def replacing(goal: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary path; rename it to `goal` when the block ends well, remove it otherwise.

    Args:
        goal: The file that exists afterwards.
        mode: Permissions of the file, set before the rename.

    Raises:
        StoreError: No file can be made there.
    """
    temporary = temporary_beside(goal)
    make_parent(goal)
    try:
        temporary.touch(mode=mode, exist_ok=False)
    except OSError as error:
        raise unwritable(goal, error) from error
    try:
        yield temporary
        settle(temporary, goal)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(goal: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a small file at once."""
    with replacing(goal, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(goal: Path, value: Any, *, mode: int = 0o644) -> None:
    """Write a JSON file at once, indented, with a newline at the end."""
    write_text(goal, json.dumps(value, indent=2, ensure_ascii=False) + "\n", mode=mode)


def named_by_content(folder: Path, name: str, write: Callable[[Path], object]) -> Path:
    """Write a file whose name has a hash of its content: the same content has the same path.

    Args:
        folder: Where it is written.
        name: Its name without the hash, such as `rows.parquet`.
        write: Writes the file at a path.
    """
    goal = folder / name
    temporary = temporary_beside(goal)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write(temporary)
        return temporary.replace(goal.with_stem(f"{goal.stem}-{sha256_file(temporary)[:16]}"))
    finally:
        temporary.unlink(missing_ok=True)


def refuse_existing(goal: Path) -> None:
    """Raise if a file or folder cannot be made because of what exists.

    Raises:
        StoreError: `goal` exists, or it would be below a file.
    """
    if isinstance(goal, Address):
        refuse_taken(goal)
    elif goal.exists() or goal.is_symlink():
        raise StoreError(f"{goal} exists already", hint="choose another path, or remove it first")
    elif why := _in_the_way(goal):
        raise StoreError(f"{goal} cannot be written: {why}", hint="choose another path")


@contextlib.contextmanager
def building_folder(goal: Path) -> Iterator[Path]:
    """Yield an empty folder beside `goal`; it takes that name when the block ends well, else it is removed.

    Raises:
        StoreError: `goal` exists, or no folder can be made there.
    """
    with _folder_beside(goal) as folder:
        yield folder
        refuse_existing(goal)
        settle(folder, goal)


@contextlib.contextmanager
def building_both(goal: Path, beside: Path, *, is_same: Callable[[Path, Path], bool]) -> Iterator[Path]:
    """Yield an empty folder, in which the block makes `goal` and `beside` under their own names.

    `beside` is renamed first and `goal` last: if `goal` exists, so does `beside`. A process that is killed
    in between leaves only `beside`, which the same command accepts as its own when it runs again.

    Args:
        goal: The file or folder that exists afterwards.
        beside: The other one, in the same folder.
        is_same: Whether an existing `beside` equals the one that the block made.

    Raises:
        StoreError: `goal` exists, `beside` is something else, or no folder can be made there.
    """
    with _folder_beside(goal) as folder:
        yield folder
        if isinstance(goal, Address):
            refuse_existing(beside)
            found = [path for path in folder.rglob("*") if path.is_file()]
            publish({goal.parent.joinpath(*path.relative_to(folder).parts): path for path in found}, goal)
            return
        made = folder / beside.name
        refuse_existing(goal)
        was_left = beside.exists() and is_same(beside, made)
        if not was_left:
            refuse_existing(beside)
            made.replace(beside)
        try:
            (folder / goal.name).replace(goal)
        except BaseException:  # also on Ctrl-C: without `goal`, `beside` is removed
            if not was_left:
                beside.replace(made)
            raise


@contextlib.contextmanager
def _folder_beside(goal: Path) -> Iterator[Path]:
    """A new folder beside `goal`, removed when the block ends."""
    refuse_existing(goal)
    temporary = temporary_beside(goal)
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        raise unwritable(goal, error) from error
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
