"""Where a file lies that a message refers to."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from trajkit.schema import FileBlock


def local_path(block: FileBlock) -> str | None:
    """The path of a file that the gateway kept on a file system; None where it is elsewhere.

    A stored path that leads out of the gateway's folder is no place.
    """
    place: Any = block.storage_path
    kind = place.get("kind") if isinstance(place, dict) else None
    if not isinstance(kind, dict) or kind.get("type") != "filesystem":
        return None
    folder, name = kind.get("path"), place.get("path")
    if not isinstance(folder, str) or not isinstance(name, str):
        return None
    inner = PurePosixPath(name)
    if inner.is_absolute() or ".." in inner.parts:
        return None
    return str(PurePosixPath(folder) / inner)
