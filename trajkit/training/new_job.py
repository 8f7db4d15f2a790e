"""Create a job: its name, its folder with the rows, and its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import building_folder
from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.curation.leaks.report import LeakReport
from trajkit.errors import RequestError
from trajkit.schema.base import JsonObject
from trajkit.training.job import JobData, TuneJob
from trajkit.training.origin import Origin, code_commit, versions_of
from trajkit.training.runs import JOB_FILE, Runs
from trajkit.training.side import Side, origin_of_side


class Written(NamedTuple):
    """The rows of a job, in its folder."""

    train: JobData
    """Training data."""
    validation: JobData | None
    """Validation data."""
    remote: JsonObject = {}
    """Initial state at a service: the first `TuneJob.remote`."""


def prepared_job(
    runs: Runs,
    write: Callable[[Path], Written],
    *,
    name: str | None,
    data: Path,
    train: Side,
    leak: LeakReport,
    packages: Sequence[str],
    **facts: Any,
) -> tuple[TuneJob, bool]:
    """Return the prepared job of a key, and whether it is new.

    Args:
        runs: Folder of the jobs.
        write: Writes the rows into the job's folder. It is not called where the job exists already.
        name: Name of the job; None for one made of the model and the data.
        data: Training data, as the user names it.
        train: The opened training data.
        leak: Result of the leak check.
        packages: Packages whose versions affect the result.
        facts: Other fields of `TuneJob`, including its key.

    Raises:
        RequestError: There is another job with the name.
    """
    if (found := same_job(runs, facts["key"], name)) is not None:
        return found, False
    job_id = name_for(runs, name, base=facts["base"], data=data, method=facts["method"])
    origin = origin_of_side(train)
    with building_folder(runs.path(job_id)) as folder:
        facts |= write(folder)._asdict()
        return begin_job(folder, job_id=job_id, leak=leak, origin=origin, packages=packages, **facts), True


def same_job(runs: Runs, key: str, name: str | None) -> TuneJob | None:
    """Return the existing job with this key; None where there is none, or another name is requested."""
    found = runs.find(key)
    return found if found is not None and name in (None, found.job_id) else None


def name_for(runs: Runs, name: str | None, *, base: str, data: Path, method: str) -> str:
    """Return the requested name, or one made of the model, the data, and the method if it is not `sft`.

    Raises:
        RequestError: There is already a job with the requested name.
    """
    if name is not None:
        if runs.path(name).exists():
            raise RequestError(f"there is already a job {name!r}", hint="choose another --name")
        return name
    parts = [path.rpartition("/")[2].removeprefix(SAMPLE_PREFIX) for path in (base, str(data))]
    return runs.new_name("-".join(parts if method == "sft" else [*parts, method]))


def begin_job(
    folder: Path, *, origin: Origin, packages: Sequence[str], leak: LeakReport | None = None, **facts: Any
) -> TuneJob:
    """Write the record of a prepared job.

    Args:
        folder: The job's folder, while it is built.
        origin: Functions and variants of the learned steps.
        packages: Packages whose versions affect the result.
        leak: Result of the leak check; None where there are no stores.
        facts: Other fields of `TuneJob`.
    """
    job = TuneJob(
        **facts,
        leak=None if leak is None else leak.model_dump(mode="json"),
        function=origin.function,
        variants=origin.variants,
        versions=versions_of(packages),
        code_commit=code_commit(),
        created_at=datetime.now(UTC),
    )
    (folder / JOB_FILE).write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return job
