"""Run one training in several processes, one per GPU; accelerate averages their gradients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trajkit._core.lazy import need
from trajkit.errors import RequestError, TrainingError
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.train import Trained

RESULT, FAILURE = "replicas.json", "replicas.error"


def n_replicas(recipe: LocalRecipe) -> int:
    """Return the number of training processes: the recipe's, or one per GPU."""
    if recipe.num_processes is not None:
        return recipe.num_processes
    return max(1, int(need("torch", extra="local").cuda.device_count()))


def check_replicas(recipe: LocalRecipe) -> None:
    """Refuse settings that several processes do not support.

    Raises:
        RequestError: `auto_batch` is set.
    """
    if n_replicas(recipe) > 1 and recipe.auto_batch:
        raise RequestError(
            f"auto_batch is for one process, and {n_replicas(recipe)} would train",
            hint="choose a smaller --per-device-train-batch-size, or --set num_processes=1",
        )


def run_replicas(runs_folder: Path, job_id: str, n: int) -> Trained:
    """Train a job in several processes and wait for them; they end with this process.

    Args:
        runs_folder: Folder of the jobs.
        job_id: Id of the job.
        n: Number of processes.

    Raises:
        TrainingError: A process failed.
    """
    folder = runs_folder / job_id
    for name in (RESULT, FAILURE):
        (folder / name).unlink(missing_ok=True)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}"]
    replica = ["-m", "trajkit.training.local.replica", str(runs_folder), job_id]
    process = subprocess.Popen([*launcher, *replica])
    try:
        code = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()  # the launcher ends its processes
            process.wait()
    if code == 0:
        return Trained.model_validate_json((folder / RESULT).read_text(encoding="utf-8"))
    failure = folder / FAILURE
    reason = failure.read_text(encoding="utf-8") if failure.is_file() else f"exit code {code}"
    raise TrainingError(f"one of {n} processes failed: {reason}", hint="their output: the job's worker.log")
