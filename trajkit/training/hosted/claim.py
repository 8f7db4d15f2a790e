"""What this machine knows of the jobs that it asked services for, whatever folder they were asked from.

A service may take a while to list a new job. Until then a second folder can learn of it only here.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from trajkit._core.files import write_text
from trajkit._core.lock import locked
from trajkit.errors import RequestError
from trajkit.schema import Model
from trajkit.schema.base import UtcTime
from trajkit.training.hosted.service import RemoteId

_PATIENCE_S, _POLL_S = 900.0, 0.2


class Claim(Model):
    """That a job was asked for."""

    asked_at: UtcTime
    """When."""
    remote_id: RemoteId | None = None
    """The service's id of it; None while its answer is not known."""


class Claims:
    """The claim on one job; the folder of claims is the user's own.

    Args:
        key: What the job is a job of: the same in every folder.
    """

    def __init__(self, key: str) -> None:
        state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        self._path = Path(state).expanduser() / "trajkit" / "asked" / f"{key}.json"

    @contextlib.contextmanager
    def alone(self, on_message: Callable[[str], None]) -> Iterator[None]:
        """Hold the job for the time of a block; waits for another process that does.

        Raises:
            RequestError: The other one does not end, or nothing can be written here.
        """
        folder = self._path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _unwritable(folder, error.strerror) from error
        if not os.access(folder, os.W_OK):
            raise _unwritable(folder, "permission denied")
        for n_tries in range(round(_PATIENCE_S / _POLL_S)):
            with locked(self._path.with_suffix(".lock")) as holder:
                if holder is None:
                    yield
                    return
            if n_tries == 0:
                on_message(f"{holder} is creating the same job: waiting for it")
            time.sleep(_POLL_S)
        raise RequestError(f"{holder} is still creating the same job", hint="wait until it has ended")

    def read(self) -> Claim | None:
        """What is known; None where nothing is."""
        try:
            return Claim.model_validate_json(self._path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError):
            return None

    def write(self, asked_at: datetime, remote_id: str | None = None) -> None:
        """Say that the job was asked for, before and after it was."""
        write_text(self._path, Claim(asked_at=asked_at, remote_id=remote_id).model_dump_json() + "\n")

    def drop(self) -> None:
        """Say that the service did not take it."""
        self._path.unlink(missing_ok=True)


def _unwritable(folder: Path, why: str | None) -> RequestError:
    return RequestError(
        f"{folder} cannot be written: {why}",
        hint="XDG_STATE_HOME names another folder; what is there keeps a job from being paid for twice",
    )
