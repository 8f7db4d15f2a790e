"""Keep records of the user for all working folders: requests to services, and files being sent."""

from __future__ import annotations

import os
from pathlib import Path

from trajkit.errors import RequestError


def user_state(name: str) -> Path:
    """Return the folder of some records; it need not exist."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "trajkit" / name


def make_writable(folder: Path) -> None:
    """Make the folder of some records, for this user only.

    Raises:
        RequestError: It cannot be written.
    """
    why = "permission denied"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        why = str(error.strerror)
    else:
        if os.access(folder, os.W_OK):
            return
    raise RequestError(
        f"{folder} cannot be written: {why}",
        hint="set XDG_STATE_HOME to another folder; its records keep a job from being paid for twice, and"
        " show what a killed command had sent",
    )
