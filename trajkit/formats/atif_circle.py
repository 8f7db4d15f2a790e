"""Who calls whom among the trajectories of an ATIF document: each id once, and no circle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trajkit.formats.document import BadDocument, objects_at, shown
from trajkit.schema.base import JsonObject


def refuse_circles(value: JsonObject) -> None:
    """Refuse sub-agents that call each other in a circle: they have no order in time.

    Raises:
        BadDocument: There is a circle, or an id is there twice.
    """
    called: dict[str, set[str]] = {}
    _collect(value, called, "")
    left = {name: others & called.keys() for name, others in called.items()}
    while ended := [name for name, others in left.items() if not others]:
        for name in ended:
            del left[name]
        for others in left.values():
            others.difference_update(ended)
    if left:
        path = [next(iter(left))]
        while path[-1] not in path[:-1]:
            path.append(min(left[path[-1]]))
        circle = " → ".join(path[path.index(path[-1]) :])
        raise BadDocument("sub-agents that call each other in a circle", "subagent_trajectories", circle)


def _collect(value: JsonObject, called: dict[str, set[str]], where: str) -> None:
    name = str(value.get("trajectory_id") or "")
    if name and name in called:
        raise BadDocument("a trajectory id that is there twice", f"{where}trajectory_id", shown(name))
    called[name] = {
        str(each["trajectory_id"]) for each in _references(value, where) if each.get("trajectory_id")
    }
    subs = objects_at(value.get("subagent_trajectories"), f"{where}subagent_trajectories")
    for position, sub in enumerate(subs):
        _collect(sub, called, f"{where}subagent_trajectories.{position}.")


def _references(value: JsonObject, where: str) -> Iterator[dict[str, Any]]:
    steps = value.get("steps")
    for step in steps if isinstance(steps, list) else ():
        observation = step.get("observation") if isinstance(step, dict) else None
        results = observation.get("results") if isinstance(observation, dict) else None
        for result in results if isinstance(results, list) else ():
            if isinstance(result, dict) and result.get("subagent_trajectory_ref"):
                yield from objects_at(result["subagent_trajectory_ref"], f"{where}subagent_trajectory_ref")
