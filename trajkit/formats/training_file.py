"""Write the settings and the command beside training rows, and find files that rows refer to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from trajkit.schema import FileBlock


def settings(command: str, values: Mapping[str, Any]) -> str:
    """Return a YAML file with the values in their order, under a comment with the command that reads it."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, default_flow_style=False)
    return f"# {command}\n{text}"


def script(command: str) -> str:
    """Return a shell script that runs a command in its own folder."""
    return f'#!/bin/sh\nset -e\ncd "$(dirname "$0")"\nexec {command}\n'


def local_path(block: FileBlock) -> str | None:
    """Return the path of a file that the gateway stored on a file system; None if it is elsewhere.

    A stored path that leads out of the gateway's folder also gives None.
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
