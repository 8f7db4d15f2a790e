"""Run one of several processes of a training, started by torch's launcher.

python -m trajkit.training.local.running.replica RUNS JOB
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trajkit._core.files import write_text
from trajkit._core.lazy import need
from trajkit.errors import TrajkitError
from trajkit.schema.base import JsonObject
from trajkit.training.local.running.replicas import FAILURE, RESULT
from trajkit.training.local.running.worker import train_here
from trajkit.training.runs import Runs


def main(arguments: list[str]) -> int:
    """Train; the first process records events and the result."""
    runs, job_id = Runs(Path(arguments[0])), arguments[1]
    folder, is_first = runs.path(job_id), os.environ["RANK"] == "0"

    def tell(event: JsonObject) -> None:
        if is_first:
            runs.add_event(job_id, event)

    try:
        trained = train_here(runs, runs.load(job_id), tell)
    except TrajkitError as error:
        write_text(folder / FAILURE, str(error))
        raise
    except (RuntimeError, ValueError, OSError, MemoryError) as error:
        write_text(folder / FAILURE, (str(error).splitlines() or [type(error).__name__])[0])
        raise
    if is_first:
        write_text(folder / RESULT, trained.model_dump_json())
    distributed = need("torch", extra="local").distributed
    if distributed.is_initialized():
        distributed.destroy_process_group()  # a thread of it that outlives the interpreter aborts the process
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
