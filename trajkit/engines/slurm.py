"""Run tasks as a job array: of Slurm, or of any other scheduler that starts `job.sh` with a number."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trajkit._core.files import write_text
from trajkit._core.output.console import talk
from trajkit.engines.job import Job
from trajkit.errors import ServiceError, TrajkitError

_LOOK_S = 0.2
"""Seconds between two searches for files of finished tasks."""

_SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array={array}
#SBATCH --output={log}
cd {here} && exec {python} -m trajkit.engines.task {folder} "${{SLURM_ARRAY_TASK_ID:-$1}}"
"""


def run(job: Job, indexes: list[int], workers: int | None) -> Iterator[int]:
    """Submit tasks by `sbatch`, if it is on the PATH, and yield each that is done.

    Without `sbatch` the command is shown, and the files of finished tasks are waited for. Options of sbatch
    come from its own environment variables, such as `SBATCH_PARTITION`.

    Raises:
        TrajkitError: A task failed, or the array ended without it.
        ServiceError: `sbatch` refused the array.
    """
    script, array = _written(job, indexes, workers)
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        talk(
            f"there is no sbatch here: start {script} with each of {array.partition('%')[0]} as its argument"
        )
        yield from _finished(job, indexes, None)
        return
    # --wait: the process lasts as long as the array
    with subprocess.Popen(
        [sbatch, "--wait", str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as submission:
        try:
            yield from _finished(job, indexes, submission)
        finally:
            submission.terminate()


def _finished(job: Job, indexes: list[int], submission: subprocess.Popen[str] | None) -> Iterator[int]:
    waiting = list(indexes)
    while waiting:
        has_ended = submission is not None and submission.poll() is not None  # before the search for files
        for index in [index for index in waiting if job.is_done(index)]:
            waiting.remove(index)
            yield index
        failed = [error for index in waiting if (error := job.failure(index)) is not None]
        if failed and (submission is None or has_ended or len(failed) == len(waiting)):
            raise failed[0]
        if has_ended and waiting:
            raise _ended(job, waiting, submission)
        if waiting:
            time.sleep(_LOOK_S)


def _ended(job: Job, missing: list[int], submission: subprocess.Popen[str] | None) -> TrajkitError:
    assert submission is not None
    assert submission.stdout is not None
    answer = submission.stdout.read().strip()
    if "Submitted" not in answer:
        return ServiceError(f"sbatch refused the array: {answer or submission.returncode}")
    numbers = ", ".join(str(index + 1) for index in missing[:20])
    return TrajkitError(
        f"{job.what}: the array ended without shard {numbers} of {job.n}",
        hint=f"{job.folder / 'log'} may say why; the same command continues with the missing shards",
    )


def _written(job: Job, indexes: list[int], workers: int | None) -> tuple[Path, str]:
    """Write `job.sh` for the missing tasks; return it and the numbers of its array."""
    array = f"0-{job.n - 1}" if len(indexes) == job.n else ",".join(map(str, indexes))
    array += f"%{workers}" if workers else ""
    log = job.folder / "log"
    log.mkdir(exist_ok=True)
    script = job.folder / "job.sh"
    text = _SCRIPT.format(
        name=f"trajkit-{job.folder.name}",
        array=array,
        log=log / "%a.txt",
        here=shlex.quote(str(Path.cwd())),
        python=shlex.quote(sys.executable),
        folder=shlex.quote(str(job.folder)),
    )
    write_text(script, text, mode=0o755)
    return script, array
