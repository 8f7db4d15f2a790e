"""Job folders of Harbor and BenchFlow: a folder per trial, with its result and its trajectories."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trajkit.formats.reading import benchflow, harbor
from trajkit.formats.reading.document import BadDocument, Reading, object_at, shown
from trajkit.sources.files.atif_family import family
from trajkit.sources.files.found import MOST_BYTES, Found
from trajkit.sources.files.texts import lines_of, opened, read_json, read_whole, value_of
from trajkit.sources.files.walk import folders_under

RESULT = "result.json"
DEPTH = 3
"""Folders of jobs, of a job and of a trial are looked at."""


def harbor_trials(root: Path, *, include_errored: bool) -> Iterator[Found]:
    """Every trial of Harbor in a folder of trials, of a job or of jobs.

    Args:
        root: The folder.
        include_errored: Whether trials that failed are read, too.
    """
    return _results(root, harbor.is_trial, harbor.error_of, _trial, include_errored=include_errored)


def benchflow_rollouts(root: Path, *, include_errored: bool) -> Iterator[Found]:
    """Every rollout of BenchFlow in a folder of rollouts, of a job or of jobs.

    Args:
        root: The folder.
        include_errored: Whether rollouts that failed are read, too.
    """
    return _results(root, benchflow.is_rollout, benchflow.error_of, _rollout, include_errored=include_errored)


def _results(
    root: Path,
    is_one: Callable[[Any], bool],
    error_of: Callable[[dict[str, Any]], str | None],
    read: Callable[[dict[str, Any], Path, Path], Reading | str],
    *,
    include_errored: bool,
) -> Iterator[Found]:
    """The results in the folders below a folder; `read` gives the episodes of one, or why there are none."""
    for folder, place in _folders(root):
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


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    for folder in folders_under(root, depth=DEPTH):
        if os.path.lexists(folder / RESULT):
            yield folder, root.name if folder == root else folder.relative_to(root).as_posix()


def _trajectories(trial: Path) -> list[Path]:
    """The agent's trajectory; of a trial in several steps one per step."""
    whole = trial / "agent" / "trajectory.json"
    if os.path.lexists(whole):
        return [whole]
    return sorted(trial.glob("steps/*/agent/trajectory.json"))


def _trial(result: dict[str, Any], folder: Path, root: Path) -> Reading | str:
    mains, subs = [], []
    for path in _trajectories(folder):
        found = family(path, folder, root)
        mains += found.mains
        subs += found.subs
    if not mains:
        return "without a trajectory in ATIF"
    reading = harbor.read_trial(result, mains, _verifier(folder, root))
    return Reading((*reading.episodes, *harbor.subs_of(reading.episodes[0], subs)))


def _verifier(folder: Path, root: Path) -> dict[str, Any] | None:
    """The rewards that the verifier wrote itself."""
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
        raise BadDocument("a reward that is no number", "verifier/reward.txt", shown(text))
    return {"reward": reward}


def _rollout(result: dict[str, Any], folder: Path, root: Path) -> Reading | str:
    """From the trace that says most: calls with their prompts, ATIF, the events."""
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
    return "without a trace that is read"


def _objects(path: Path, root: Path) -> list[dict[str, Any]]:
    """The lines of a trace, of which there are no more than fit into memory."""
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
