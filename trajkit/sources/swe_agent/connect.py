"""Find the trajectories of SWE-agent and mini-swe-agent in a folder, and how they were judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.formats.reading.document import BadDocument, object_at
from trajkit.sources.calls import Session, found_by
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.texts import read_json
from trajkit.sources.files.walk import files_under, shown_path
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.swe_agent.rows import Verdict, instance_of, is_trajectory, session_of
from trajkit.sources.wish import Wish

NAME = "swe-agent"
_SUFFIXES = (".traj", ".traj.json")
_MOST_JUDGED = 20_000_000
_MOST_LOOKED_AT = 200
_RESOLVED = ("resolved_ids", "resolved", "resolved_instances")
_JUDGED = ("completed_ids", "submitted_ids", "unresolved_ids", "applied", "generated", "no_generation")


class _Report(NamedTuple):
    """A report of SWE-bench."""

    folder: Path
    """Where it is: it judges the run below."""
    resolved: frozenset[str]
    judged: frozenset[str]
    at: datetime
    """When the file was written: the report has no time of its own."""


def is_named_so(path: Path) -> bool:
    """Whether a file is named as trajectories are."""
    return path.name.endswith(_SUFFIXES)


def read(place: str, _wish: Wish) -> Iterator[Found | Unread]:
    """Yield the trajectories below a path, a file each."""
    root = Path(place)
    within = root if root.is_dir() else None
    paths = list(files_under(root)) if within else [root]
    reports = list(_reports(paths, within)) if within else []
    for path in paths:
        if within and not is_named_so(path):
            continue
        where = shown_path(path, root)
        yield found_by(partial(_session, path, where, within, reports), where)


def _session(path: Path, where: str, within: Path | None, reports: list[_Report]) -> Session:
    value = read_json(path, "the file", within)
    if isinstance(value, list):  # mini-swe-agent's messages by themselves
        value = {"messages": value, "info": {}}
    value = object_at(value, "the file")
    if not is_trajectory(value):
        raise BadDocument("no trajectory of SWE-agent or mini-swe-agent")
    return session_of(value, where, _verdicts(reports, path, instance_of(value, where)))


def _verdicts(reports: list[_Report], path: Path, instance: str) -> Iterator[Verdict]:
    for report in reports:
        if not path.is_relative_to(report.folder):
            continue
        if instance in report.resolved or instance in report.judged:
            yield Verdict(instance in report.resolved, report.at)


def _reports(paths: list[Path], within: Path | None) -> Iterator[_Report]:
    """Yield what SWE-bench says of the instances: files such as `results.json` beside them."""
    for path in paths:
        if path.suffix != ".json" or is_named_so(path) or path.stat().st_size > _MOST_JUDGED:
            continue
        try:
            value = read_json(path, path.name, within)
        except BadDocument:
            continue  # not every JSON file of a run is a report
        if isinstance(value, dict) and any(isinstance(value.get(name), list) for name in _RESOLVED):
            resolved = frozenset(_texts(value, _RESOLVED))
            at = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
            yield _Report(path.parent, resolved, resolved | frozenset(_texts(value, _JUDGED)), at)


def _texts(value: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        found = value.get(name)
        yield from (one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def _recognises(place: str) -> bool:
    path = Path(place)
    if "://" in place or not path.exists():
        return False
    if path.is_file():
        return is_named_so(path)
    return any(map(is_named_so, itertools.islice(files_under(path), _MOST_LOOKED_AT)))


SOURCE = Source(
    name=NAME,
    about="trajectories of SWE-agent (.traj) and mini-swe-agent (.traj.json), with SWE-bench's reports",
    read=read,
    recognises=_recognises,
    fidelity={
        "session": kept("the name of the instance"),
        "prompt": kept("of SWE-agent before 1.0 from its history, which may have been shortened"),
        "tool calls": kept("where the agent calls tools and does not write commands in its text"),
        "thoughts": kept("where the model gives them apart from its answer"),
        "tokens": kept("per call of mini-swe-agent; SWE-agent counts them per instance, in `origin`"),
        "cost": kept("per call of mini-swe-agent; SWE-agent counts it per instance, in `origin`"),
        "time": changed("mini-swe-agent: when the answer came; SWE-agent has no times"),
        "finish reason": kept("of mini-swe-agent"),
        "failed calls": kept("answers whose format was wrong"),
        "metrics": kept("`resolved`, where a report of SWE-bench is in the folder"),
        "task and seed": changed("the task is the name of the instance; there is no seed"),
        **lost("sub-agents", "tools offered", "latency", "comments", "tags and user", "token ids"),
    },
)
"""The source."""
