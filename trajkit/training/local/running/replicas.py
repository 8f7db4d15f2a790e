"""Run one training in several processes, one per GPU, also of several machines; accelerate joins them."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from trajkit._core.lazy import need
from trajkit.errors import RequestError, TrainingError
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.attempt import last_checkpoint
from trajkit.training.local.train import Trained

RESULT, FAILURE = "replicas.json", "replicas.error"
_PORT = 29400


def n_replicas(recipe: LocalRecipe) -> int:
    """Return the number of training processes on all machines: the recipe's, or one per GPU."""
    if recipe.num_processes is not None:
        return recipe.num_processes
    return recipe.num_machines * max(1, int(need("torch", extra="local").cuda.device_count()))


def check_replicas(recipe: LocalRecipe, method: str = "sft") -> None:
    """Refuse settings that several processes, or one, do not support.

    Raises:
        RequestError: `auto_batch` is set, `fsdp` has one process, or the method is not `sft`.
    """
    n = n_replicas(recipe)
    if method != "sft":
        if recipe.fsdp or recipe.num_machines > 1:
            raise RequestError(
                f"{method} trains in one process: fsdp and num_machines are for `sft local`",
                hint="--set load_in=4bit or gradient_checkpointing=true takes less memory",
            )
        return
    if n > 1 and recipe.auto_batch:
        raise RequestError(
            f"auto_batch works with one process, not {n}",
            hint="choose a smaller --per-device-train-batch-size, or --set num_processes=1",
        )
    if n == 1 and recipe.fsdp:
        raise RequestError(
            "fsdp shards a model across processes, and there is only one",
            hint="leave it out, or --set num_processes=2",
        )


def run_replicas(
    runs_folder: Path, job_id: str, recipe: LocalRecipe, workspace: Path, on_message: Callable[[str], None]
) -> Trained:
    """Train a job in several processes and wait for them; those of this machine end with this process.

    Args:
        runs_folder: Folder of the jobs; every machine sees it.
        job_id: Id of the job.
        recipe: Settings of the training.
        workspace: Folder for checkpoints.
        on_message: Called with the command that the other machines run.

    Raises:
        TrainingError: A process failed.
    """
    folder = runs_folder / job_id
    for name in (RESULT, FAILURE):
        (folder / name).unlink(missing_ok=True)
    last_checkpoint(workspace)  # deletes incomplete ones, before several processes look for them
    n = n_replicas(recipe)
    arguments = [
        *_launch(recipe, job_id),
        *("-m", "trajkit.training.local.running.worker", str(runs_folder), job_id, "replica"),
    ]
    if recipe.num_machines > 1:
        command = shlex.join(["torchrun", *arguments])
        on_message(f"waiting for {recipe.num_machines - 1} more of {recipe.num_machines} machines: {command}")
    process = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *arguments])
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


def _launch(recipe: LocalRecipe, job_id: str) -> list[str]:
    """Return torchrun's options, the same on every machine."""
    each = f"--nproc-per-node={n_replicas(recipe) // recipe.num_machines}"
    if recipe.num_machines == 1:
        return ["--standalone", each]
    where = recipe.rdzv_endpoint or f"{socket.gethostname()}:{_PORT}"
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={where}", f"--rdzv-id={job_id}"]
    return [f"--nnodes={recipe.num_machines}", each, *meeting]
