"""A trajectory with those that it names by path: what it was continued in, and its sub-agents'."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.formats.reading.atif_parts import refuse_outside
from trajkit.formats.reading.document import BadDocument, object_at, shown
from trajkit.sources.files.texts import read_json


class Family(NamedTuple):
    """Trajectories that belong together."""

    mains: list[dict[str, Any]]
    """The trajectory and those that it was continued in, in order."""
    subs: list[dict[str, Any]]
    """Those of the sub-agents that have files of their own."""


def family(path: Path, folder: Path, root: Path) -> Family:
    """Read a trajectory with all that it refers to.

    Args:
        path: Its file.
        folder: What it refers to must lie in here.
        root: The folder that is imported: no link out of it is followed.

    Raises:
        BadDocument: A file is missing, outside the folder, or no JSON; or there is a circle.
    """
    found = Family([], [])
    seen: list[Path] = []
    at: Path | None = path
    while at is not None:
        if at.resolve() in seen:
            raise BadDocument("trajectories that continue each other in a circle", value=shown(at.name))
        seen.append(at.resolve())
        value = _read(at, [], root)
        found.mains.append(value)
        _add_subs(value, at, folder, root, [at], found.subs)
        reference = value.get("continued_trajectory_ref")
        at = _resolved(reference, at, folder) if isinstance(reference, str) else None
    return found


def _add_subs(
    value: dict[str, Any],
    path: Path,
    folder: Path,
    root: Path,
    above: list[Path],
    subs: list[dict[str, Any]],
) -> None:
    for reference in _sub_paths(value):
        inner = _resolved(reference, path, folder)
        sub = _read(inner, above, root)
        subs.append(sub)
        _add_subs(sub, inner, folder, root, [*above, inner], subs)


def _sub_paths(value: dict[str, Any]) -> Iterator[str]:
    steps = value.get("steps")
    for step in steps if isinstance(steps, list) else ():
        observation = step.get("observation") if isinstance(step, dict) else None
        results = observation.get("results") if isinstance(observation, dict) else None
        for result in results if isinstance(results, list) else ():
            references = result.get("subagent_trajectory_ref") if isinstance(result, dict) else None
            for reference in references if isinstance(references, list) else ():
                if isinstance(reference, dict) and isinstance(reference.get("trajectory_path"), str):
                    yield reference["trajectory_path"]


def _resolved(reference: str, path: Path, folder: Path) -> Path:
    """The file that a reference names, which lies in the folder also when links are followed."""
    refuse_outside(reference, "trajectory_path")
    found = (path.parent / reference).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise BadDocument("a path that leads out of its folder", "trajectory_path", shown(reference))
    return found


def _read(path: Path, above: list[Path], root: Path) -> dict[str, Any]:
    if path.resolve() in [one.resolve() for one in above]:
        circle = " → ".join(one.name for one in (*above, path))
        raise BadDocument("sub-agents that call each other in a circle", value=circle)
    if not os.path.lexists(path):
        raise BadDocument("a trajectory that is not there", value=shown(path.name))
    return object_at(read_json(path, path.name, root), path.name)
