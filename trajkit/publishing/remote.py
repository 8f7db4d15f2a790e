"""What is on the Hub: repositories with their files, and whose token it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trajkit.errors import RequestError, ServiceError

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*[A-Za-z0-9_]")


class RemoteFile(NamedTuple):
    """A file of a repository, as the Hub describes it."""

    n_bytes: int
    """Its size."""
    sha256: str | None
    """Of its bytes, where it is kept as a large file; None where it is in git itself."""
    blob_id: str | None
    """Its id in git."""

    def is_same(self, path: Path) -> bool:
        """Whether it has the bytes of a file here."""
        if path.stat().st_size != self.n_bytes:
            return False
        with path.open("rb") as file:
            if self.sha256 is not None:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
            blob = hashlib.sha1(b"blob %d\0" % self.n_bytes, usedforsecurity=False)
            while piece := file.read(1 << 20):
                blob.update(piece)
        return blob.hexdigest() == self.blob_id


class Remote(NamedTuple):
    """A repository at one commit."""

    commit: str
    """Its commit."""
    is_private: bool
    """Whether only its owner sees it."""
    files: Mapping[str, RemoteFile]
    """Its files by path."""


class Account(NamedTuple):
    """Whose token it is."""

    name: str
    """The user."""
    writes_to: frozenset[str]
    """Owners that it may write for, as far as the Hub says; organisations with an unknown role are in."""
    can_write: bool
    """False for a token that only reads."""


def checked_name(repository: str) -> str:
    """A repository's name as `owner/name`.

    Raises:
        RequestError: It is none.
    """
    if not _REPOSITORY.fullmatch(repository) or "--" in repository or ".." in repository:
        raise RequestError(f"{repository!r} is no name of a repository", hint="such as org/name")
    return repository


def refuse_writing(account: Account, repository: str) -> None:
    """Raise where it is plain before anything is sent that this token cannot write there.

    Raises:
        ServiceError: The token only reads, or its owner is not of that organisation.
    """
    owner = repository.partition("/")[0]
    if not account.can_write:
        raise ServiceError(
            f"the token of {account.name} only reads", hint="make one with the role write, then HF_TOKEN=..."
        )
    if owner not in account.writes_to:
        raise ServiceError(
            f"{account.name} may not write for {owner}",
            hint=f"owners that the token may write for: {', '.join(sorted(account.writes_to))}",
        )
