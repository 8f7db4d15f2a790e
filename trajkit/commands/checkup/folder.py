"""The stores of the folder, its fine-tuning jobs and its runs of recipes: what is incomplete or not ended."""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trajkit._core.sending import left_unsent
from trajkit._core.settings import Project, project, remembered
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.errors import ConfigError, TrajkitError

if TYPE_CHECKING:
    from trajkit.commands.recipe.folder import RunFolder, StepRecord
    from trajkit.training.runs import Runs

_RUNS = Path("runs")
_MOST_SAID = 200
_LEFT_OVER = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp")
"""As `_core.files.temporary_beside` names what is being written."""


def stores() -> Iterator[Check]:
    """Every store in the folder of stores, the last one written, and what is half-written."""
    try:
        folder = Path(project().stores)
    except ConfigError:  # what is wrong with the file is reported as a setting
        folder = Path(Project().stores)
    yield from _all_in(folder)
    last = remembered("last_store")
    path = last.get("path") if isinstance(last, dict) else None
    if isinstance(path, str) and not Path(path).exists():
        yield note("last store", f"{path} is gone", "name a STORE in the next command")
    for each in (Path(), folder, _RUNS, Path(tempfile.gettempdir())):
        yield from _left_over(each)
    for goal in left_unsent():
        said = f"{goal} was being sent when the command was killed"
        yield note("left over", said, "run the same command again to fix it", path=goal)


def _all_in(folder: Path) -> Iterator[Check]:
    from trajkit.store.layout import MANIFEST_NAME
    from trajkit.store.reader import open_store

    whole, n_bytes = 0, 0
    found = [
        path.parent for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/{MANIFEST_NAME}"))
    ]
    for path in found:
        if _LEFT_OVER.fullmatch(path.name) or _LEFT_OVER.fullmatch(path.parent.name):
            continue
        try:
            store = open_store(path)
        except TrajkitError as error:
            yield broken("store", error.message, error.hint, path=str(path))
            continue
        whole += 1
        n_bytes += sum(part.n_bytes for part in store.manifest.parts)
    if whole:
        said = f"{whole:,} in {folder}, {n_bytes / 1e6:,.1f} MB, every part there"
        yield well("stores", said, n_stores=whole, n_bytes=n_bytes)
    elif not found:
        yield note("stores", f"none in {folder}", "trajkit info sample:babyai shows an included one")


def _left_over(folder: Path) -> Iterator[Check]:
    """What a killed command did not finish; what a running one writes is left out."""
    from trajkit.stack.process import birth_of

    if sys.platform == "win32" or not folder.is_dir():  # there a process cannot be found by its id alone
        return
    for path in sorted(folder.glob(".*.tmp")):
        name = _LEFT_OVER.fullmatch(path.name)
        if name is not None and birth_of(int(name["pid"])) is None:
            said = f"{path} is what a killed command left of {name['name']}"
            yield note("left over", said, f"rm -r {shlex.quote(str(path))}", path=str(path))


def jobs() -> Iterator[Check]:
    """The jobs in `runs`, by their records: no service is called."""
    from trajkit.training.runs import JOB_FILE, Runs

    runs, n_done = Runs(_RUNS), 0
    names = sorted(path.parent.name for path in _RUNS.glob(f"*/{JOB_FILE}"))
    for name in names:
        if (found := _job(runs, name)) is None:
            n_done += 1
        else:
            yield found
    if n_done:
        yield well("jobs", f"{n_done:,} in {_RUNS} with a model, or ended by you", n_jobs=n_done)


def _job(runs: Runs, name: str) -> Check | None:
    """What is wrong with a job; None if it ended well."""
    from trajkit.training.job import JobStatus

    title, again = f"job {name}", f"trajkit jobs resume {shlex.quote(name)}"
    try:
        job = runs.load(name)
    except TrajkitError as error:
        return broken(title, error.message, f"rm -r {shlex.quote(str(runs.path(name)))}")
    if job.status == JobStatus.FAILED:
        return note(title, f"failed: {_short(job.error)}", again)
    if job.status == JobStatus.PREPARED:
        return note(title, "its rows are written, and nothing was started", again)
    if job.status == JobStatus.RUNNING and not job.is_here:
        return note(
            title, f"ran at {job.target} when it was last checked", f"trajkit jobs show {shlex.quote(name)}"
        )
    if job.status == JobStatus.RUNNING and job.process is not None:
        if job.process.is_running:
            return well(title, f"runs, process {job.process.pid}", pid=job.process.pid)
        return note(title, "was cut off: its process is gone", again)
    return None


def recipe_runs() -> Iterator[Check]:
    """The folders that `trajkit run -o` wrote here, or in `runs`."""
    from trajkit.commands.recipe.folder import FACTS_FILE, RunFolder

    for pattern in (f"*/{FACTS_FILE}", f"{_RUNS}/*/{FACTS_FILE}"):
        for path in sorted(Path().glob(pattern)):
            try:
                yield _recipe_run(RunFolder(path.parent))
            except TrajkitError as error:
                yield broken(f"run {path.parent}", error.message, error.hint)


def _recipe_run(folder: RunFolder) -> Check:
    from trajkit.commands.recipe.folder import RECIPE_FILE, StepStatus
    from trajkit.commands.recipe.load import load

    title, facts = f"run {folder.path}", folder.facts()
    names = list(load(str(folder.path / RECIPE_FILE)).recipe.steps)
    records = {name: folder.record(name) for name in names}
    left = [name for name, record in records.items() if record is None or record.status != StepStatus.DONE]
    if not left:
        return well(title, f"{facts.recipe}: all {len(names)} steps are done")
    changes = [part for name, text in facts.settings.items() for part in ("--set", f"{name}={text}")]
    again = shlex.join(["trajkit", "run", facts.source, "-o", str(folder.path), *changes])
    done = f"{facts.recipe}: {len(names) - len(left)} of {len(names)} steps are done"
    return note(title, f"{done}; {left[0]} {_how(records[left[0]])}", again)


def _how(record: StepRecord | None) -> str:
    if record is None:
        return "was not started"
    if record.status == "running":
        return "was started, and has not ended"
    return f"{record.status}: {_short(record.error)}" if record.error else f"{record.status}"


def _short(text: str | None) -> str:
    line = " ".join((text or "no reason is known").split())
    return line if len(line) <= _MOST_SAID else f"{line[: _MOST_SAID - 1]}…"
