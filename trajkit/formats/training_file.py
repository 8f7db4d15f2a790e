"""The settings and the command beside training rows, as text, and where files lie that they refer to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from trajkit.schema import FileBlock


def settings(command: str, values: Mapping[str, Any]) -> str:
    """A YAML file with the values in their order, and the command that reads it on top."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, default_flow_style=False)
    return f"# {command}\n{text}"


def script(command: str) -> str:
    """A shell script that runs a command in its own folder."""
    return f'#!/bin/sh\nset -e\ncd "$(dirname "$0")"\nexec {command}\n'


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
