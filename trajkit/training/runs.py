"""Store jobs in a folder, where any process finds them, also after a reboot."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trajkit._core.files import write_text
from trajkit.errors import DataError, RequestError
from trajkit.training.job import TuneJob

_NO_FOLDER = re.compile(r"[/\\\x00-\x1f]")
_UNFIT = re.compile(r"[^\w.@-]+")
JOB_FILE, EVENTS_FILE = "job.json", "events.jsonl"


class Runs:
    """Jobs, each in its own folder.

    Args:
        folder: Folder of the jobs; created with the first job.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job_id: str) -> Path:
        """Return the folder of a job."""
        return self.folder / job_id

    def save(self, job: TuneJob) -> TuneJob:
        """Write the record of a job, and return the job."""
        write_text(self.path(job.job_id) / JOB_FILE, job.model_dump_json(indent=2) + "\n")
        return job

    def load(self, job_id: str) -> TuneJob:
        """Return a job by its name.

        Raises:
            RequestError: There is no such job; the hint lists the existing ones.
            DataError: Its file is damaged.
        """
        path = self.path(job_id) / JOB_FILE
        if not path.is_file():
            known = ", ".join(job.job_id for job in self.all()) or "none"
            raise RequestError(f"no job {job_id!r} in {self.folder}", hint=f"jobs: {known}")
        return _read(path)

    def all(self) -> Iterator[TuneJob]:
        """Yield every job, the newest first."""
        found = [_read(path) for path in self.folder.glob(f"*/{JOB_FILE}")]
        yield from sorted(found, key=lambda job: (job.created_at, job.job_id), reverse=True)

    def find(self, key: str) -> TuneJob | None:
        """Return the newest job with this key; None when there is none."""
        return next((job for job in self.all() if job.key == key), None)

    def remove(self, job_id: str) -> None:
        """Delete a job that was never started."""
        shutil.rmtree(self.path(job_id))

    def check_name(self, name: str) -> None:
        """Refuse a name that another job has, or that cannot be a folder.

        Raises:
            RequestError: It is such a name.
        """
        if name in ("", ".", "..") or _NO_FOLDER.search(name):
            raise RequestError(f"{name!r} cannot be the name of a job", hint="the name of a folder")
        if self.path(name).exists():
            raise RequestError(f"there is already a job {name!r}", hint="choose another --name")

    def new_name(self, stem: str) -> str:
        """Return a free name: the stem, or the stem and a number, without characters invalid in folders."""
        stem = _UNFIT.sub("-", stem).strip("-.") or "job"
        name, number = stem, 2
        while self.path(name).exists():
            name, number = f"{stem}-{number}", number + 1
        return name

    def add_event(self, job_id: str, event: dict[str, Any]) -> None:
        """Record an event."""
        with (self.path(job_id) / EVENTS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")

    def events(self, job_id: str, *, start: int = 0) -> list[dict[str, Any]]:
        """Return the events from this number on. An incomplete last line is left for the next call."""
        path = self.path(job_id) / EVENTS_FILE
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        return [_event(line) for line in lines[start:]]


def _event(line: str) -> dict[str, Any]:
    """Parse an event; a damaged line becomes a message that says so."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict) and "kind" in event:
        return event
    return {"kind": "message", "level": "error", "message": f"a line of {EVENTS_FILE} cannot be read"}


def _read(path: Path) -> TuneJob:
    try:
        job = TuneJob.model_validate_json(path.read_text(encoding="utf-8"))
        return job.model_copy(update={"job_id": path.parent.name})  # the folder's name is authoritative
    except (ValidationError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
