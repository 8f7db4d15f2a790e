"""A job that was not there before: its name, and the record that its folder begins with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trajkit._core.samples import SAMPLE_PREFIX
from trajkit.curation.leak_report import LeakReport
from trajkit.errors import RequestError
from trajkit.training.job import TuneJob
from trajkit.training.origin import Origin, code_commit, versions_of
from trajkit.training.runs import JOB_FILE, Runs


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
