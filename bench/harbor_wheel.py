"""Harbor's own trajectory models, without Harbor: they are plain pydantic, and load from the unpacked wheel.

The package asks for Python 3.12 and brings a hundred others. So its wheel is fetched alone and unpacked, and
its models are imported in a process of their own, past the package's `__init__`.
"""

from __future__ import annotations

from pathlib import Path

from bench.wheels import unpacked

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
    """The wheel, unpacked in a folder (`bench.wheels.unpacked`)."""
    return unpacked("harbor", VERSION, folder)
