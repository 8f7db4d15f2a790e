"""A job that was not there before: its name, its folder with the rows, and the record that the folder has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.files import building_folder
from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.curation.leak_report import LeakReport
from trajkit.errors import RequestError
from trajkit.schema.base import JsonObject
from trajkit.training.job import JobData, TuneJob
from trajkit.training.origin import Origin, code_commit, versions_of
from trajkit.training.runs import JOB_FILE, Runs
from trajkit.training.side import Side, origin_of_side


class Written(NamedTuple):
    """The rows of a job, in its folder."""

    train: JobData
    """What is learned."""
    validation: JobData | None
    """What measures."""
    remote: JsonObject = {}
    """Where the job is to run at a service: the first `TuneJob.remote`."""


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
    """The job of a key, prepared and not started, and whether it is a new one.

    Args:
        runs: Where jobs are kept.
        write: Writes the rows into the job's folder. It is not called where there is such a job already.
        name: Name of the job; None for one made of the model and the data.
        data: What is learned, as the user names it.
        train: The same, open.
        leak: What the two sides have in common.
        packages: Whose versions decide what comes out.
        facts: The other fields of `TuneJob`, its key among them.

    Raises:
        RequestError: There is another job of the name.
    """
    if (found := same_job(runs, facts["key"], name)) is not None:
        return found, False
    job_id = name_for(runs, name, base=facts["base"], data=data, method=facts["method"])
    origin = origin_of_side(train)
    with building_folder(runs.path(job_id)) as folder:
        facts |= write(folder)._asdict()
        return begin_job(folder, job_id=job_id, leak=leak, origin=origin, packages=packages, **facts), True


def same_job(runs: Runs, key: str, name: str | None) -> TuneJob | None:
    """The job with this key that is there already; None where there is none, or another name is asked for."""
    found = runs.find(key)
    return found if found is not None and name in (None, found.job_id) else None


def name_for(runs: Runs, name: str | None, *, base: str, data: Path, method: str) -> str:
    """The name that was asked for, or one of the model, the data, and the method where it is not `sft`.

    Raises:
        RequestError: There is a job of the name that was asked for.
    """
    if name is not None:
        if runs.path(name).exists():
            raise RequestError(f"there is a job {name!r} already", hint="choose another --name")
        return name
    parts = [path.rpartition("/")[2].removeprefix(SAMPLE_PREFIX) for path in (base, str(data))]
    return runs.new_name("-".join(parts if method == "sft" else [*parts, method]))


def begin_job(
    folder: Path, *, origin: Origin, packages: Sequence[str], leak: LeakReport | None = None, **facts: Any
) -> TuneJob:
    """Write the record of a job that nobody has started.

    Args:
        folder: The job's, while it is built.
        origin: What the learned steps are of.
        packages: Whose versions decide what comes out.
        leak: What the two sides have in common; None where there are no stores.
        facts: The other fields of `TuneJob`.
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
