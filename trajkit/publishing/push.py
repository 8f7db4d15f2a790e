"""Plan a push to the Hub, and push it: in one visible commit, or not at all."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import trajkit
from trajkit._core.files import sha256_file
from trajkit.errors import RequestError, ServiceError
from trajkit.publishing.files.contents import contents_digest
from trajkit.publishing.hub import Hub, HubFault, Kind, Remote, Repository, checked_name, refuse_writing
from trajkit.publishing.record import (
    RECORD,
    Record,
    add_publication,
    read_record,
)
from trajkit.schema import Published
from trajkit.store.reader import Store

_OF_THE_HUB = frozenset({".gitattributes", "README.md"})
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
        """Maximum bytes to send."""
        return sum(path.stat().st_size for path in self.add.values())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return not self.add and not self.delete


def change_of(remote: Remote | None, files: Mapping[str, Path], ours: frozenset[str]) -> Change:
    """Compare a repository with the files that it should have.

    Args:
        remote: The repository now; None if it does not exist.
        files: The wanted files, by path.
        ours: Files of an earlier push.
    """
    there = {} if remote is None else remote.files
    add = {path: file for path, file in files.items() if path not in there or not there[path].is_same(file)}
    delete = tuple(sorted(path for path in ours if path in there and path not in files))
    return Change(add, delete, len(files) - len(add))


class PushPlan(NamedTuple):
    """The plan of a push."""

    repository: str
    """Name of the repository."""
    kind: Kind
    """Kind of the repository."""
    record: Record
    """The record that describes the new files."""
    remote: Remote | None
    """The repository as it is now; None if it does not exist."""
    change: Change
    """Files to add and to delete."""
    is_public: bool
    """Whether the repository will be public."""
    tag: str | None
    """Tag of the new commit."""

    @property
    def changes_anything(self) -> bool:
        """Whether the push changes the repository, apart from the tag."""
        is_shown = self.is_public and self.remote is not None and self.remote.is_private
        return self.remote is None or is_shown or not self.change.is_empty


class Pushed(NamedTuple):
    """The result of a push."""

    commit: str
    """The commit that has the files."""
    is_new: bool
    """False when nothing had changed, so no commit was made."""
    address: str
    """Web address of the repository."""


def plan_push(
    hub: Hub,
    name: str,
    kind: Kind,
    files: Mapping[str, Path],
    record: Record,
    *,
    is_public: bool,
    licence: str | None,
    tag: str | None = None,
) -> PushPlan:
    """Compare the files with the Hub and plan the push; nothing is changed on the Hub.

    Args:
        hub: The Hub.
        name: Name as `owner/name`.
        kind: Kind of the repository.
        files: Every file by path, including card and record.
        record: Content of the record.
        is_public: Whether the repository shall be public.
        licence: The licence that was given; None for none.
        tag: Tag for the commit.

    Raises:
        RequestError: The name is invalid or taken, a public repository has no licence or is not wanted, the
            card is refused, or the tag belongs to another commit.
        ServiceError: The token cannot write there, or the Hub does not answer.
    """
    checked_name(name)
    if is_public and not licence:
        raise RequestError(
            "a public repository needs a licence, and none is named",
            hint="--license apache-2.0, or --private",
        )
    repository = hub.repository(name, kind)
    refuse_writing(hub.account, name)
    hub.check_card(files["README.md"].read_text(encoding="utf-8"), kind)
    remote = repository.look()
    before = _ours(repository, remote)
    if remote is not None and not remote.is_private and not is_public:
        raise RequestError(
            f"{name} is public: everyone can see what is pushed there",
            hint="--public to confirm, or another name",
        )
    change = change_of(remote, files, before)
    if tag is not None and remote is not None:
        held = repository.tags().get(tag)
        if held is not None and (held != remote.commit or not change.is_empty):
            raise RequestError(f"{name} already has a tag {tag}, of {held[:12]}", hint="choose another one")
    return PushPlan(name, kind, record, remote, change, is_public, tag)


def push(hub: Hub, plan: PushPlan, *, large_bytes: int = LARGE_BYTES, say: Say = lambda text: None) -> Pushed:
    """Carry out a plan. A new repository stays private until everything in it is verified.

    Args:
        hub: The Hub.
        plan: The plan.
        large_bytes: Number of bytes from which the upload goes through a branch.
        say: Called with messages about the progress.

    Raises:
        ServiceError: There was another commit since the plan was made, the Hub refused, or its files are not
            those that were sent.
    """
    repository, remote, change = hub.repository(plan.repository, plan.kind), plan.remote, plan.change
    if remote is None:
        repository.create()
        remote = repository.look()
        if remote is None or not set(remote.files) <= _OF_THE_HUB:
            raise RequestError(
                f"{repository.name} was created by someone else meanwhile", hint="choose another name"
            )
    if change.is_empty:
        commit = remote.commit
    else:
        commit = _upload(
            repository,
            change,
            parent=remote.commit,
            message=f"{'Publish' if plan.remote is None else 'Update'} {contents_digest(plan.record)[:16]}",
            large_bytes=large_bytes,
            say=say,
        )
    if plan.tag is not None:
        repository.tag(plan.tag, commit)
    if plan.is_public and remote.is_private:
        repository.show_to_all()
    return Pushed(commit, not change.is_empty, repository.address)


def write_down(hub: Hub, plan: PushPlan, pushed: Pushed, splits: Mapping[str, Store]) -> None:
    """Record the publication in the manifest of each store.

    Raises:
        StoreError: A manifest cannot be written.
    """
    for store in splits.values():
        add_publication(
            store,
            Published(
                repository=plan.repository,
                endpoint=hub.endpoint,
                commit=pushed.commit,
                tag=plan.tag,
                digest=store.manifest.digest,
                is_private=not plan.is_public,
                published_at=datetime.now(UTC),
                trajkit_version=trajkit.__version__,
            ),
        )


def _ours(repository: Repository, remote: Remote | None) -> frozenset[str]:
    """Return the files that an earlier push put there.

    Raises:
        RequestError: The repository has other content.
    """
    if remote is None or set(remote.files) <= _OF_THE_HUB:
        return frozenset()
    if RECORD not in remote.files:
        raise RequestError(
            f"{repository.name} is taken: it has {len(remote.files):,} files that trajkit did not put there",
            hint="choose another name",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = repository.download(RECORD, remote.commit, Path(folder))
        record = read_record(path.read_bytes(), f"{RECORD} of {repository.name}")
    if record.kind != repository.kind:
        raise RequestError(f"{repository.name} holds a {record.kind}", hint="choose another name")
    return frozenset(file.path for file in record.files) | {RECORD}


def _upload(
    repository: Repository,
    change: Change,
    *,
    parent: str,
    message: str,
    large_bytes: int,
    say: Say,
) -> str:
    """Commit a change, verify that the commit has the bytes that were sent, and return its id.

    Large files are sent first. The Hub keeps them after a failure, so that the next try does not send them
    again. From `large_bytes`, everything goes to a branch, is compared there, and becomes visible with one
    commit. After a lost answer the repository is checked, so nothing is committed twice.
    """
    branch = None
    if change.n_bytes >= large_bytes:
        branch = _branch_name(change, parent)
        _fill_branch(repository, change, branch, parent, say)
    operations = [*repository.hub.additions(change.add), *repository.hub.deletions(change.delete)]
    commit = _commit_once(repository, operations, change, parent, message, None, say)
    _verify(repository, change, commit)
    if branch is not None:
        repository.remove_branch(branch)
    return commit


def _verify(repository: Repository, change: Change, commit: str) -> None:
    """Verify that a commit has the files that were sent.

    The Hub gives the sha256 of each large file and git's own hash of each small one. Up to 50 files of
    200 MB in total are also read back.
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
    """Return the first difference between a repository and a change, in words; None if there is none."""
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
                raise ServiceError(
                    f"{repository.name} got another commit meanwhile: it was {parent[:12]} and is "
                    f"{now.commit[:12]}",
                    hint="look at that commit, then run the same command again; nothing was changed by this "
                    "command",
                ) from None
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
