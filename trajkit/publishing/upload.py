"""Put a folder into a repository: in one commit that everybody sees at once, or not at all."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import sha256_file
from trajkit.errors import ServiceError
from trajkit.publishing.fault import HubFault
from trajkit.publishing.hub import Hub, Kind, Remote

LARGE_BYTES = 2_000_000_000
"""From so many bytes to send on, they go to a branch first, in several commits."""
_FILES_PER_COMMIT = 20
_READ_BACK_BYTES = 200_000_000
_READ_BACK_FILES = 50
_ATTEMPTS = 5

Say = Callable[[str], None]


class Change(NamedTuple):
    """What a repository has to become."""

    add: Mapping[str, Path]
    """Files that are not there, or are others, by path."""
    delete: tuple[str, ...]
    """Files that were ours and are no longer."""
    n_same: int
    """Files that are there already."""

    @property
    def n_bytes(self) -> int:
        """Bytes to send at most."""
        return sum(path.stat().st_size for path in self.add.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not self.add and not self.delete


def change_of(remote: Remote | None, files: Mapping[str, Path], ours: frozenset[str]) -> Change:
    """Compare a repository with what it has to hold.

    Args:
        remote: What is there; None for no repository.
        files: What it has to hold, by path.
        ours: Files that were put there before, by us.
    """
    there = {} if remote is None else remote.files
    add = {path: file for path, file in files.items() if path not in there or not there[path].is_same(file)}
    delete = tuple(sorted(path for path in ours if path in there and path not in files))
    return Change(add, delete, len(files) - len(add))


def upload(
    hub: Hub,
    repository: str,
    kind: Kind,
    change: Change,
    *,
    parent: str,
    message: str,
    large_bytes: int = LARGE_BYTES,
    say: Say = lambda text: None,
) -> str:
    """Commit a change, and prove that the commit has the bytes that were sent.

    Large files go first, and are kept by the Hub when something goes wrong: the next try does not send them
    again. From `large_bytes` on everything goes to a branch, is compared there, and becomes visible with one
    commit. A lost answer is looked up in the repository and never sent twice.

    Args:
        hub: Where to.
        repository: The repository; it exists.
        kind: What it is.
        change: What to commit.
        parent: The commit that the change was compared with.
        message: Of the commit.
        large_bytes: From how many bytes on a branch is used.
        say: Told what goes on.

    Returns:
        The commit.

    Raises:
        ServiceError: Somebody else committed meanwhile, the Hub refused, or what it has is not what was sent.
    """
    branch = None
    if change.n_bytes >= large_bytes:
        branch = _branch_name(change, parent)
        _fill_branch(hub, repository, kind, change, branch, parent, say)
    operations = [*hub.additions(change.add), *hub.deletions(change.delete)]
    commit = _commit_once(hub, repository, kind, operations, change, parent, message, None, say)
    verify(hub, repository, kind, change, commit)
    if branch is not None:
        hub.remove_branch(repository, kind, branch)
    return commit


def verify(hub: Hub, repository: str, kind: Kind, change: Change, commit: str) -> None:
    """Prove that a commit has the files that were sent.

    The Hub says the sha256 of each large file and git's own hash of each small one; up to 50 files with
    200 MB in all are read back too.

    Raises:
        ServiceError: One is missing, or is another.
    """
    remote = hub.look(repository, kind, commit)
    wrong = _difference(remote, change)
    if wrong is not None:
        raise ServiceError(
            f"{repository} at {commit[:12]} is not what was sent: {wrong}",
            hint="look at it on the Hub, and run the same command again",
        )
    left = _READ_BACK_BYTES
    with tempfile.TemporaryDirectory() as folder:
        by_size = sorted(change.add.items(), key=lambda item: item[1].stat().st_size, reverse=True)
        for path, file in by_size[:_READ_BACK_FILES]:
            left -= file.stat().st_size
            if left < 0:
                left += file.stat().st_size
                continue
            back = hub.download(repository, kind, path, commit, Path(folder))
            if sha256_file(back) != sha256_file(file):
                raise ServiceError(
                    f"{path} of {repository} at {commit[:12]} reads back as other bytes than were sent",
                    hint="look at it on the Hub, and run the same command again",
                )
            back.unlink()


def _difference(remote: Remote | None, change: Change) -> str | None:
    """What a repository lacks of a change, in words; None when it has all of it."""
    files = {} if remote is None else remote.files
    for path, file in change.add.items():
        if path not in files:
            return f"{path} is missing"
        if not files[path].is_same(file):
            return f"{path} has other bytes"
    gone = [path for path in change.delete if path in files]
    return f"{gone[0]} is still there" if gone else None


def _commit_once(
    hub: Hub,
    repository: str,
    kind: Kind,
    operations: list[Any],
    change: Change,
    parent: str,
    message: str,
    branch: str | None,
    say: Say,
) -> str:
    """Commit, however often it takes to know that it was done, and never twice."""
    for attempt in itertools.count():
        try:
            return hub.commit(repository, kind, operations, message=message, parent=parent, branch=branch)
        except HubFault as fault:
            if not fault.is_passing and not fault.is_conflict:
                raise
            say(f"{fault.message}; looking at what is there")
            now = hub.look(repository, kind, branch)
            if now is not None and now.commit != parent:
                if _difference(now, change) is None:
                    return now.commit  # it was done, and only the answer was lost
                raise _stale(repository, parent, now.commit) from None
            if attempt == _ATTEMPTS - 1:
                raise
            hub.wait(attempt, fault)
    raise AssertionError("the loop returns or raises")


def _fill_branch(
    hub: Hub, repository: str, kind: Kind, change: Change, branch: str, parent: str, say: Say
) -> None:
    """Send everything to a branch, what an earlier try left there not again, and compare it there."""
    head = hub.branch(repository, kind, branch, parent)
    there = hub.look(repository, kind, branch)
    left = change_of(there, change.add, frozenset()).add
    if len(left) < len(change.add):
        say(f"{len(change.add) - len(left)} of {len(change.add)} files were sent before")
    for number, some in enumerate(_some(left), start=1):
        head = _commit_once(
            hub,
            repository,
            kind,
            hub.additions(some),
            Change(some, (), 0),
            head,
            f"Upload, piece {number}",
            branch,
            say,
        )
    wrong = _difference(hub.look(repository, kind, branch), Change(change.add, (), 0))
    if wrong is not None:
        raise ServiceError(
            f"the branch {branch} of {repository} is not what was sent: {wrong}",
            hint="run the same command again: what is right there is not sent twice",
        )


def _some(files: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    waiting = iter(sorted(files.items()))
    while some := dict(itertools.islice(waiting, _FILES_PER_COMMIT)):
        yield some


def _branch_name(change: Change, parent: str) -> str:
    """The same for the same change, so that a second try finds what the first one sent."""
    lines = [parent, *(f"{path}:{sha256_file(file)}" for path, file in sorted(change.add.items()))]
    return f"trajkit-upload-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"


def _stale(repository: str, parent: str, now: str) -> ServiceError:
    return ServiceError(
        f"somebody else committed to {repository} meanwhile: it was {parent[:12]} and is {now[:12]}",
        hint="look at what they did, then run the same command again; nothing of ours is there",
    )
