"""Read job folders of Harbor and BenchFlow: a folder per trial, with its result and its trajectories."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trajkit.formats.reading import benchflow, harbor
from trajkit.formats.reading.atif_parts import refuse_outside
from trajkit.formats.reading.document import BadDocument, Reading, object_at, shown
from trajkit.sources.files.found import MOST_BYTES, Found
from trajkit.sources.files.texts import lines_of, opened, read_json, read_whole, value_of
from trajkit.sources.files.walk import folders_under

RESULT = "result.json"
DEPTH = 3
"""Folders of jobs, of a job and of a trial are searched."""

_Value = dict[str, Any]


def trials(root: Path, name: str, *, include_errored: bool) -> Iterator[Found]:
    """Yield every trial in a folder of trials, of a job or of jobs.

    Args:
        root: The folder.
        name: `harbor` or `benchflow`.
        include_errored: Whether failed trials are read as well.
    """
    is_one, error_of, read = JOBS[name]
    for folder in folders_under(root, depth=DEPTH):
        if not os.path.lexists(folder / RESULT):
            continue
        place = root.name if folder == root else folder.relative_to(root).as_posix()
        try:
            result = read_json(folder / RESULT, RESULT, root)
            if not is_one(result):
                continue  # of the whole job
            if (error := error_of(result)) and not include_errored:
                yield Found(place, aside=f"ended in an error: {error}")
                continue
            found = read(result, folder, root)
            yield Found(place, aside=found) if isinstance(found, str) else Found(place, found)
        except BadDocument as error:
            yield Found(place, problem=error.problem)


def _trajectories(trial: Path) -> list[Path]:
    """Return the agent's trajectory; one per step if the trial has several."""
    whole = trial / "agent" / "trajectory.json"
    if os.path.lexists(whole):
        return [whole]
    return sorted(trial.glob("steps/*/agent/trajectory.json"))


def _trial(result: _Value, folder: Path, root: Path) -> Reading | str:
    mains: list[_Value] = []
    subs: list[_Value] = []
    for path in _trajectories(folder):
        _add_family(path, folder, root, mains, subs)
    if not mains:
        return "without a trajectory in ATIF"
    reading = harbor.read_trial(result, mains, _verifier(folder, root))
    return Reading((*reading.episodes, *harbor.subs_of(reading.episodes[0], subs)))


def _add_family(path: Path, folder: Path, root: Path, mains: list[_Value], subs: list[_Value]) -> None:
    """Read a trajectory with its continuations, and those of sub-agents with their own files.

    What it refers to must lie in its folder, and no link out of the root is followed.
    """
    seen: list[Path] = []
    at: Path | None = path
    while at is not None:
        if at.resolve() in seen:
            raise BadDocument("trajectories that continue each other in a circle", value=shown(at.name))
        seen.append(at.resolve())
        value = _read(at, [], root)
        mains.append(value)
        _add_subs(value, at, folder, root, [at], subs)
        reference = value.get("continued_trajectory_ref")
        at = _resolved(reference, at, folder) if isinstance(reference, str) else None


def _add_subs(
    value: _Value, path: Path, folder: Path, root: Path, above: list[Path], subs: list[_Value]
) -> None:
    for reference in _sub_paths(value):
        inner = _resolved(reference, path, folder)
        sub = _read(inner, above, root)
        subs.append(sub)
        _add_subs(sub, inner, folder, root, [*above, inner], subs)


def _sub_paths(value: _Value) -> Iterator[str]:
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
    """Return the file of a reference, which must be in the folder even after following links."""
    refuse_outside(reference, "trajectory_path")
    found = (path.parent / reference).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise BadDocument("a path that leads out of its folder", "trajectory_path", shown(reference))
    return found


def _read(path: Path, above: list[Path], root: Path) -> _Value:
    if path.resolve() in [one.resolve() for one in above]:
        circle = " → ".join(one.name for one in (*above, path))
        raise BadDocument("sub-agents that call each other in a circle", value=circle)
    if not os.path.lexists(path):
        raise BadDocument("a missing trajectory", value=shown(path.name))
    return object_at(read_json(path, path.name, root), path.name)


def _verifier(folder: Path, root: Path) -> _Value | None:
    """Return the rewards that the verifier itself wrote."""
    listed = folder / "verifier" / "reward.json"
    if os.path.lexists(listed):
        return object_at(read_json(listed, "verifier/reward.json", root), "verifier/reward.json")
    single = folder / "verifier" / "reward.txt"
    if not os.path.lexists(single):
        return None
    text = read_whole(single, root).decode("utf-8", "replace").strip()
    try:
        reward = float(text)
    except ValueError:
        reward = math.nan
    if not math.isfinite(reward):
        raise BadDocument("a reward that is not a number", "verifier/reward.txt", shown(text))
    return {"reward": reward}


def _rollout(result: _Value, folder: Path, root: Path) -> Reading | str:
    """Read the most detailed trace: calls with their prompts, else ATIF, else the events."""
    calls = folder / "trajectory" / "llm_trajectory.jsonl"
    if os.path.lexists(calls):
        exchanges = _objects(calls, root)
        if benchflow.has_whole_calls(exchanges):
            return benchflow.read_calls(result, exchanges)
    atif = folder / "trainer" / "atif.json"
    if os.path.lexists(atif):
        value = object_at(read_json(atif, "trainer/atif.json", root), "trainer/atif.json")
        return benchflow.read_atif_of(result, value)
    events = folder / "trajectory" / "acp_trajectory.jsonl"
    if os.path.lexists(events):
        return benchflow.read_events(result, _objects(events, root))
    return "without a supported trace"


def _objects(path: Path, root: Path) -> list[_Value]:
    """Return the lines of a trace, at most as many as fit into memory."""
    found = []
    n_bytes = 0
    with opened(path, root) as file:
        for line in lines_of(file):
            n_bytes += len(line.data)
            if n_bytes > MOST_BYTES:
                raise BadDocument(f"longer than {MOST_BYTES // 1_000_000} MB", path.name)
            try:
                found.append(object_at(value_of(line), ""))
            except BadDocument as error:
                raise BadDocument(
                    error.problem.kind, f"{path.name}:{line.number}", error.problem.value
                ) from None
    return found


JOBS: Mapping[
    str, tuple[Callable[[Any], bool], Callable[[_Value], str | None], Callable[..., Reading | str]]
] = {
    "harbor": (harbor.is_trial, harbor.error_of, _trial),
    "benchflow": (benchflow.is_rollout, benchflow.error_of, _rollout),
}
"""For each format: whether a value is a result, why it failed, and its episodes, or why there are none."""
