"""Harbor's own trajectory models, without Harbor: they are plain pydantic, and load from the unpacked wheel.

The package asks for Python 3.12 and brings a hundred others. So its wheel is fetched alone and unpacked, and
its models are imported in a process of their own, past the package's `__init__`.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "0.25.0"
"""The first with ATIF 1.8."""

PRELUDE = """
import sys, types
for name in ("harbor", "harbor.models"):
    package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
    sys.modules[name] = package
from harbor.models.trajectories.trajectory import Trajectory
"""
"""Begins a script whose first argument is the unpacked wheel; gives `Trajectory`."""


def unpacked_wheel(folder: Path) -> Path:
    """The wheel, unpacked in a folder; fetched from the package registry unless it is there.

    Raises:
        OSError: The registry does not have it, or cannot be reached.
    """
    goal = folder / f"harbor-{VERSION}"
    if (goal / "harbor").is_dir():
        return goal
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--only-binary=:all:", "--python-version=3.12", f"--dest={folder}", f"harbor=={VERSION}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip() or "pip download failed")
    (wheel,) = folder.glob(f"harbor-{VERSION}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(goal)
    return goal
