"""Publish: what would be done, and doing it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import trajkit
from trajkit.errors import RequestError
from trajkit.publishing.contents import contents_digest
from trajkit.publishing.hub import Hub, Kind, Remote, checked_name, refuse_writing
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
    """What publishing would do."""

    repository: str
    """Where to."""
    kind: Kind
    """What it is."""
    record: Record
    """What the repository will say of itself."""
    remote: Remote | None
    """What is there now; None for nothing."""
    change: Change
    """What is different."""
    is_public: bool
    """Whether everybody will see it."""
    tag: str | None
    """The tag that the commit gets."""

    @property
    def changes_anything(self) -> bool:
        """Whether anything on the Hub would be another afterwards, but for the tag."""
        is_shown = self.is_public and self.remote is not None and self.remote.is_private
        return self.remote is None or is_shown or not self.change.is_empty


class Pushed(NamedTuple):
    """What publishing did."""

    commit: str
    """The commit that has it."""
    is_new: bool
    """False when nothing had changed: then nothing was committed."""
    address: str
    """Where people look at it."""


def plan_push(
    hub: Hub,
    repository: str,
    kind: Kind,
    files: Mapping[str, Path],
    record: Record,
    *,
    is_public: bool,
    licence: str | None,
    tag: str | None = None,
) -> PushPlan:
    """Look at the Hub, and say what publishing would do; nothing is changed there.

    Args:
        hub: Where to.
        repository: As `owner/name`.
        kind: What it is.
        files: Every file, by path; the card and the record too.
        record: What the record says.
        is_public: Whether everybody shall see it.
        licence: What was said of the licence; None for nothing.
        tag: For the commit.

    Raises:
        RequestError: The name cannot be one or is taken by something else, it is public and has no licence or
            may not be, the card is refused, or the tag is another commit's.
        ServiceError: The token cannot write there, or the Hub does not answer.
    """
    checked_name(repository)
    if is_public and not licence:
        raise RequestError(
            "what is public needs a licence, and none is named", hint="--license apache-2.0, or --private"
        )
    refuse_writing(hub.account, repository)
    hub.check_card(files["README.md"].read_text(encoding="utf-8"), kind)
    remote = hub.look(repository, kind)
    before = _ours(hub, repository, kind, remote)
    if remote is not None and not remote.is_private and not is_public:
        raise RequestError(
            f"{repository} is public: what is pushed there is seen by everybody",
            hint="--public if that is meant, else another name",
        )
    change = change_of(remote, files, before)
    if tag is not None and remote is not None:
        held = hub.tags(repository, kind).get(tag)
        if held is not None and (held != remote.commit or not change.is_empty):
            raise RequestError(
                f"{repository} has a tag {tag} already, of {held[:12]}", hint="choose another one"
            )
    return PushPlan(repository, kind, record, remote, change, is_public, tag)


def push(hub: Hub, plan: PushPlan, *, large_bytes: int = LARGE_BYTES, say: Say = lambda text: None) -> Pushed:
    """Do what was planned. A new repository is private until everything in it was verified.

    Args:
        hub: Where to.
        plan: What to do.
        large_bytes: From how many bytes on a branch is used.
        say: Told what goes on.

    Raises:
        ServiceError: Somebody else committed since the plan was made, the Hub refused, or what it has is not
            what was sent.
    """
    repository, kind = plan.repository, plan.kind
    remote = plan.remote
    change = plan.change
    if remote is None:
        hub.create(repository, kind)
        remote = hub.look(repository, kind)
        if remote is None or not set(remote.files) <= _OF_THE_HUB:
            raise RequestError(
                f"{repository} was taken by somebody else meanwhile", hint="choose another name"
            )
    if change.is_empty:
        commit = remote.commit
    else:
        commit = upload(
            hub,
            repository,
            kind,
            change,
            parent=remote.commit,
            message=f"{'Publish' if plan.remote is None else 'Update'} {contents_digest(plan.record)[:16]}",
            large_bytes=large_bytes,
            say=say,
        )
    if plan.tag is not None:
        hub.tag(repository, kind, plan.tag, commit)
    if plan.is_public and remote.is_private:
        hub.show_to_all(repository, kind)
    return Pushed(commit, not change.is_empty, hub.address(repository, kind))


def write_down(hub: Hub, plan: PushPlan, pushed: Pushed, splits: Mapping[str, Store]) -> None:
    """Say in the manifest of each store where it was published.

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


def _ours(hub: Hub, repository: str, kind: Kind, remote: Remote | None) -> frozenset[str]:
    """Files that were put there before by us.

    Raises:
        RequestError: Something else is there.
    """
    if remote is None or set(remote.files) <= _OF_THE_HUB:
        return frozenset()
    if RECORD not in remote.files:
        raise RequestError(
            f"{repository} is taken: it holds {len(remote.files):,} files that trajkit did not put there",
            hint="choose another name",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = hub.download(repository, kind, RECORD, remote.commit, Path(folder))
        record = read_record(path.read_bytes(), f"{RECORD} of {repository}")
    if record.kind != kind:
        raise RequestError(f"{repository} holds a {record.kind}", hint="choose another name")
    return frozenset(file.path for file in record.files) | {RECORD}
