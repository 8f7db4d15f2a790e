"""Plan a push to the Hub, and push it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import trajkit
from trajkit.errors import RequestError
from trajkit.publishing.files.contents import contents_digest
from trajkit.publishing.hub import Hub, Kind, Remote, Repository, checked_name, refuse_writing
from trajkit.publishing.record import (
    RECORD,
    Record,
    add_publication,
    read_record,
)
from trajkit.publishing.upload import LARGE_BYTES, Change, Say, change_of, upload
from trajkit.schema import Published
from trajkit.store.reader import Store

_OF_THE_HUB = frozenset({".gitattributes", "README.md"})


class PushPlan(NamedTuple):
    """The plan of a push."""

    repository: str
    """Name of the repository."""
    kind: Kind
    """Kind of the repository."""
    record: Record
    """The record that describes the new files."""
    remote: Remote | None
    """The repository as it is now; None where it does not exist."""
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
        commit = upload(
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
