"""Which model `trajkit push` sends, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from trajkit.commands.local_model import job_of, model_folder
from trajkit.errors import DataError, RequestError

if TYPE_CHECKING:
    from trajkit.publishing.model import Measured, Origin


class ModelToSend(NamedTuple):
    """A model of this machine."""

    folder: Path
    """Has the adapter, or the model."""
    origin: Origin
    """What it was made of."""
    measured: Measured | None
    """What an evaluation says."""


def model_of(name: str, asked: Mapping[str, Any]) -> ModelToSend | None:
    """The model of this name: a job's, or a folder with one; None where it is none, and so a store.

    Raises:
        RequestError: The job has no model on this machine.
        DataError: The report of the evaluation is none.
    """
    from trajkit.publishing.model import Origin, is_model

    found = job_of(name, asked["runs_folder"])
    folder = Path(name)
    if found is None and not is_model(folder):
        return None
    if found is None:
        if asked["merged"]:
            raise RequestError(f"--merged is for jobs; {name} is a model", hint="name the job")
        origin = Origin(base=asked["base"], dataset=asked["dataset"])
        return ModelToSend(folder, origin, _measured(asked["evaluation"]))
    runs, job = found
    if job.target != "local":
        raise RequestError(f"job {job.job_id} was tuned by {job.target}: its model is not on this machine")
    if asked["merged"]:
        from trajkit.training.local.finish import write_merged

        folder = write_merged(runs, job)
    else:
        folder = model_folder(name, runs, job)
    base = asked["base"] or job.base
    origin = Origin(base=base, data_digest=job.train.digest, dataset=asked["dataset"], job_id=job.job_id)
    return ModelToSend(folder, origin, _measured(asked["evaluation"]))


def _measured(path: Path | None) -> Measured | None:
    if path is None:
        return None
    from trajkit.evaluation.report_files import JSON
    from trajkit.evaluation.report_model import ReportData
    from trajkit.evaluation.report_text import group_table, said_of
    from trajkit.publishing.model import Measured

    file = path / JSON if path.is_dir() else path
    try:
        report = ReportData.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{file} is no report: {str(error).splitlines()[0]}", hint="trajkit report STORE… -o REPORT"
        ) from error
    table = group_table(report)
    return Measured(headings=table.headings, rows=tuple(table.rows), said=said_of(report))
