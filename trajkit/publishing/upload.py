"""Upload files to a repository in one visible commit, or not at all."""

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
from trajkit.publishing.hub import Remote, Repository

LARGE_BYTES = 2_000_000_000
"""From this number of bytes, files go to a branch first, in several commits."""
_FILES_PER_COMMIT = 20
_READ_BACK_BYTES = 200_000_000
_READ_BACK_FILES = 50
_ATTEMPTS = 5

Say = Callable[[str], None]


class Change(NamedTuple):
    """The difference between a repository and the files that it should have."""

    add: Mapping[str, Path]
    """New and changed files, by path."""
    delete: tuple[str, ...]
    """Files of an earlier push that are no longer wanted."""
    n_same: int
    """Files that are unchanged."""

    @property
    def n_bytes(self) -> int:
        """Most bytes to send."""
        return sum(path.stat().st_size for path in self.add.values())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return not self.add and not self.delete


def change_of(remote: Remote | None, files: Mapping[str, Path], ours: frozenset[str]) -> Change:
    """Compare a repository with the files that it should have.

    Args:
        remote: The repository now; None where it does not exist.
        files: The wanted files, by path.
        ours: Files of an earlier push.
    """
    there = {} if remote is None else remote.files
    add = {path: file for path, file in files.items() if path not in there or not there[path].is_same(file)}
    delete = tuple(sorted(path for path in ours if path in there and path not in files))
    return Change(add, delete, len(files) - len(add))


def upload(
    repository: Repository,
    change: Change,
    *,
    parent: str,
    message: str,
    large_bytes: int = LARGE_BYTES,
    say: Say = lambda text: None,
) -> str:
    """Commit a change, and verify that the commit has the bytes that were sent.

    Large files are sent first. The Hub keeps them after a failure, so that the next try does not send them
    again. From `large_bytes`, everything goes to a branch, is compared there, and becomes visible with one
    commit. After a lost answer the repository is checked, so nothing is committed twice.

    Args:
        repository: An existing repository.
        change: The change to commit.
        parent: The commit that the change was compared with.
        message: Message of the commit.
        large_bytes: Number of bytes from which the upload goes through a branch.
        say: Called with messages about the progress.

    Returns:
        The id of the commit.

    Raises:
        ServiceError: There was another commit meanwhile, the Hub refused, or its files differ from those
            that were sent.
    """
    branch = None
    if change.n_bytes >= large_bytes:
        branch = _branch_name(change, parent)
        _fill_branch(repository, change, branch, parent, say)
    operations = [*repository.hub.additions(change.add), *repository.hub.deletions(change.delete)]
    commit = _commit_once(repository, operations, change, parent, message, None, say)
    verify(repository, change, commit)
    if branch is not None:
        repository.remove_branch(branch)
    return commit


def verify(repository: Repository, change: Change, commit: str) -> None:
    """Verify that a commit has the files that were sent.

    The Hub gives the sha256 of each large file and git's own hash of each small one. Up to 50 files of
    200 MB in total are also read back.

    Raises:
        ServiceError: A file is missing or differs.
    """
    remote = repository.look(commit)
    wrong = _difference(remote, change)
    if wrong is not None:
        raise ServiceError(
            f"{repository.name} at {commit[:12]} is not what was sent: {wrong}",
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
            back = repository.download(path, commit, Path(folder))
            if sha256_file(back) != sha256_file(file):
                raise ServiceError(
                    f"{path} of {repository.name} at {commit[:12]} reads back as other bytes than were sent",
                    hint="look at it on the Hub, and run the same command again",
                )
            back.unlink()


def _difference(remote: Remote | None, change: Change) -> str | None:
    """Return the first difference between a repository and a change, in words; None where there is none."""
    files = {} if remote is None else remote.files
    for path, file in change.add.items():
        if path not in files:
            return f"{path} is missing"
        if not files[path].is_same(file):
            return f"{path} has other bytes"
    gone = [path for path in change.delete if path in files]
    return f"{gone[0]} is still there" if gone else None


def _commit_once(
    repository: Repository,
    operations: list[Any],
    change: Change,
    parent: str,
    message: str,
    branch: str | None,
    say: Say,
) -> str:
    """Commit once, with as many tries as it takes to know that it is done."""
    for attempt in itertools.count():
        try:
            return repository.commit(operations, message=message, parent=parent, branch=branch)
        except HubFault as fault:
            if not fault.is_passing and not fault.is_conflict:
                raise
            say(f"{fault.message}; checking the repository")
            now = repository.look(branch)
            if now is not None and now.commit != parent:
                if _difference(now, change) is None:
                    return now.commit  # the commit was made, and only the answer was lost
                raise _stale(repository.name, parent, now.commit) from None
            if attempt == _ATTEMPTS - 1:
                raise
            repository.hub.wait(attempt, fault)
    raise AssertionError("the loop returns or raises")


def _fill_branch(repository: Repository, change: Change, branch: str, parent: str, say: Say) -> None:
    """Send the files that the branch does not have yet, and verify the branch."""
    head = repository.branch(branch, parent)
    there = repository.look(branch)
    left = change_of(there, change.add, frozenset()).add
    if len(left) < len(change.add):
        say(f"{len(change.add) - len(left)} of {len(change.add)} files were sent in an earlier try")
    for number, some in enumerate(_some(left), start=1):
        head = _commit_once(
            repository,
            repository.hub.additions(some),
            Change(some, (), 0),
            head,
            f"Upload, piece {number}",
            branch,
            say,
        )
    wrong = _difference(repository.look(branch), Change(change.add, (), 0))
    if wrong is not None:
        raise ServiceError(
            f"the branch {branch} of {repository.name} is not what was sent: {wrong}",
            hint="run the same command again: files that arrived are not sent twice",
        )


def _some(files: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    waiting = iter(sorted(files.items()))
    while some := dict(itertools.islice(waiting, _FILES_PER_COMMIT)):
        yield some


def _branch_name(change: Change, parent: str) -> str:
    """Name the branch after the change, so that a second try finds the files of the first one."""
    lines = [parent, *(f"{path}:{sha256_file(file)}" for path, file in sorted(change.add.items()))]
    return f"trajkit-upload-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:16]}"


def _stale(repository: str, parent: str, now: str) -> ServiceError:
    return ServiceError(
        f"{repository} has another commit meanwhile: it was {parent[:12]} and is {now[:12]}",
        hint="look at that commit, then run the same command again; nothing was changed by this command",
    )
