"""Change configuration files: show a diff, write with a backup copy, and undo."""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from trajkit._core.files import replacing
from trajkit.errors import ConfigError, StoreError
from trajkit.schema import Model
from trajkit.schema.manifest import Sha256


class Written(Protocol):
    """A file of a configuration."""

    @property
    def path(self) -> Path:
        """Where it is."""

    @property
    def text(self) -> str:
        """Its content."""


class Configuration(Protocol):
    """The files of a gateway's configuration, whatever the gateway."""

    @property
    def files(self) -> Sequence[Written]:
        """At least one."""


class ChangedFile(Model):
    """A configuration file that was written, with the data to undo the change."""

    path: Path
    """Absolute path of the file."""
    backup: Path
    """Absolute path of a copy of its previous content."""
    before: Sha256
    """Digest of its bytes before."""
    after: Sha256
    """Digest of the bytes that were written."""


def read_text(path: Path) -> str:
    """Read a file of a configuration; its line endings stay unchanged.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def changed_files(before: Configuration, after: Configuration) -> Iterator[tuple[Written, Written]]:
    """Return the files that differ, each before and after."""
    for old, new in zip(before.files, after.files, strict=True):
        if old.text != new.text:
            yield old, new


def diff(before: Configuration, after: Configuration) -> list[str]:
    """Return the changes as lines of a unified diff."""
    return [
        line for old, new in changed_files(before, after) for line in _diff(old.text, new.text, str(old.path))
    ]


def write(before: Configuration, after: Configuration, backups: Path) -> tuple[ChangedFile, ...]:
    """Write the files that changed: all of them, or none.

    Args:
        before: The files as they were read; a file with other content now was changed by someone else.
        after: The files to write.
        backups: Folder for copies of the old content; created if needed.

    Raises:
        ConfigError: A file cannot be written, or was changed in between.
    """
    pairs = list(changed_files(before, after))
    for old, _ in pairs:
        _refuse_changed(old)
    done: list[ChangedFile] = []
    try:
        for number, (old, new) in enumerate(pairs):
            done.append(_write(old, new, backups / f"{number}-{old.path.name}"))
    except (OSError, StoreError) as error:
        _restore(done)
        raise _unwritten(error) from error
    except ConfigError:
        _restore(done)
        raise
    return tuple(done)


def undo_diff(changes: Sequence[ChangedFile]) -> list[str]:
    """Return the changes of an undo as lines of a unified diff."""
    return [
        line
        for change in changes
        for line in _diff(_text(change.path), _text(change.backup), str(_near(change.path)))
    ]


def check_undo(changes: Sequence[ChangedFile]) -> None:
    """Refuse changes that cannot be undone.

    Raises:
        ConfigError: A file was changed since, or its copy is gone.
    """
    for change in changes:
        if not change.backup.is_file() or _sha256(change.backup.read_bytes()) != change.before:
            raise ConfigError(f"{change.backup}, the old copy of {change.path}, is gone or was changed")
        if not change.path.is_file():
            raise ConfigError(f"{change.path} is gone", hint=f"its old content: {change.backup}")
        if _sha256(change.path.read_bytes()) != change.after:
            raise ConfigError(
                f"{change.path} was changed since: an undo would lose that change",
                hint=f"the old content: {change.backup}; undo later registrations first",
            )
        _refuse_read_only(change.path)


def undo(changes: Sequence[ChangedFile]) -> None:
    """Restore the files as they were.

    Raises:
        ConfigError: A file was changed since or cannot be written, or its copy is gone.
    """
    check_undo(changes)
    try:
        _restore(changes)
    except (OSError, StoreError) as error:
        raise _unwritten(error) from error


def _unwritten(error: OSError | StoreError) -> ConfigError:
    if isinstance(error, StoreError):
        return ConfigError(error.message)
    return ConfigError(f"{error.filename} cannot be written: {error.strerror or error}")


def check_writable(before: Configuration, after: Configuration) -> None:
    """Refuse files that cannot be written, before asking the user.

    Raises:
        ConfigError: A file is read-only.
    """
    for old, _ in changed_files(before, after):
        _refuse_read_only(old.path)


def _refuse_read_only(path: Path) -> None:
    # check the mode bits too: root may write everything, but must respect a read-only file
    status = path.stat()
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise ConfigError(f"{path} is read-only", hint=f"chmod u+w {path}, or name another --config")
    if status.st_nlink > 1:
        raise ConfigError(
            f"{path} has {status.st_nlink} hard links, and only one of them would get the new text",
            hint=f"make it a separate file first: cp -p {path} {path}.new && mv {path}.new {path}",
        )
    if os.geteuid() not in (0, status.st_uid):
        raise ConfigError(
            f"{path} belongs to another user, and replacing it would make it yours",
            hint="run this as its owner; --emit prints the settings instead",
        )
    if not os.access(path.resolve().parent, os.W_OK):
        raise ConfigError(
            f"the folder of {path} is read-only", hint="files are replaced, not edited in place"
        )


def _refuse_changed(old: Written) -> None:
    _refuse_read_only(old.path)
    if old.path.read_bytes() != old.text.encode("utf-8"):
        raise ConfigError(
            f"{old.path} was changed by another program meanwhile; it was left unchanged",
            hint="run the same command again",
        )


def _write(old: Written, new: Written, backup: Path) -> ChangedFile:
    goal = old.path.resolve()  # replace the target of a link, not the link
    backup.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(goal, backup)
    _refuse_changed(old)
    before, after = old.text.encode("utf-8"), new.text.encode("utf-8")
    _put(goal, after)
    return ChangedFile(
        path=old.path.absolute(), backup=backup.absolute(), before=_sha256(before), after=_sha256(after)
    )


def _restore(changes: Sequence[ChangedFile]) -> None:
    for change in reversed(changes):
        _put(change.path.resolve(), change.backup.read_bytes())


def _put(goal: Path, content: bytes) -> None:
    with replacing(goal, mode=0o600) as temporary:
        temporary.write_bytes(content)
        status = goal.stat()
        os.chown(temporary, status.st_uid, status.st_gid)
        shutil.copystat(goal, temporary)  # permissions and extended attributes, which hold access lists too
        os.utime(temporary)


def _diff(before: str, after: str, name: str) -> Iterator[str]:
    lines = (before.splitlines(), after.splitlines())
    yield from difflib.unified_diff(*lines, fromfile=name, tofile=name, lineterm="")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _near(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
