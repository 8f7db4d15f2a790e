"""Run a trainer from its last checkpoint, and suggest changes when memory or disk space runs out."""

from __future__ import annotations

import errno
import gc
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trajkit._core.lazy import need
from trajkit.errors import TrainingError
from trajkit.training.local.recipe import LocalRecipe

_WRITTEN_LAST = "trainer_state.json"  # of a checkpoint's files, by transformers 5.23


def last_checkpoint(workspace: Path) -> str | None:
    """Return the newest complete checkpoint, None when there is none; incomplete ones are deleted."""
    whole = []
    for path in workspace.glob("checkpoint-*"):
        try:
            json.loads((path / _WRITTEN_LAST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(path)
        else:
            whole.append((int(path.name.rpartition("-")[2]), str(path)))
    return max(whole)[1] if whole else None


Recipe = TypeVar("Recipe", bound=LocalRecipe)
Result = TypeVar("Result")

# libraries with native code report it only in words: torch's allocators, safetensors, torch.save
_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "unable to mmap")
_DISK = ("no space left", "file too large", "os error 28", "os error 27", "writing file failed")
_DISK_NUMBERS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def sparing(
    run: Callable[[Recipe], Result],
    recipe: Recipe,
    workspace: Path,
    on_message: Callable[[str], None] = lambda message: None,
) -> Result:
    """Run a training; when memory runs out and the recipe has `auto_batch`, repeat with smaller batches.

    Args:
        run: Trains by a recipe, from the last checkpoint in `workspace` if there is one.
        recipe: Settings of the training.
        workspace: Folder for checkpoints.
        on_message: Called with each new batch size.

    Raises:
        TrainingError: Memory or disk ran out; the message says what to change.
    """
    while True:
        try:
            return run(recipe)
        except (RuntimeError, OSError, MemoryError) as error:
            if is_out_of_disk(error):
                last_checkpoint(workspace)  # deletes incomplete checkpoints to free space
                raise out_of_disk(workspace, error) from error
            if not is_out_of_memory(error):
                raise
            smaller = halved(recipe) if recipe.auto_batch else None
            if smaller is None:
                raise out_of_memory(recipe) from error
        # outside of the handler, where the failed frames are no longer referenced
        cuda = need("torch", extra="local").cuda
        gc.collect()
        if cuda.is_available():
            cuda.empty_cache()
        recipe = smaller
        on_message(
            f"out of memory: resuming with batches of {recipe.per_device_train_batch_size},"
            f" {recipe.gradient_accumulation_steps} per step"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Check whether an exception means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in _MEMORY)


def is_out_of_disk(error: BaseException) -> bool:
    """Check whether an exception means that the disk is full."""
    if isinstance(error, OSError) and error.errno in _DISK_NUMBERS:
        return True
    text = str(error).lower()
    return any(words in text for words in _DISK) or "inline_container" in text


def halved(recipe: Recipe) -> Recipe | None:
    """Return the recipe with at most half the rows per batch, and as many per step; None for the smallest."""
    size, n_batches = recipe.per_device_train_batch_size, recipe.gradient_accumulation_steps
    of_a_step = size * n_batches
    sizes = range(size // 2, recipe.least_batch - 1, -1)
    smaller = next((each for each in sizes if of_a_step % each == 0), None)
    if smaller is None:
        return None
    return recipe.model_copy(
        update={
            "per_device_train_batch_size": smaller,
            "gradient_accumulation_steps": of_a_step // smaller,
            "per_device_eval_batch_size": max(recipe.least_batch, recipe.per_device_eval_batch_size // 2),
        }
    )


def out_of_memory(recipe: LocalRecipe) -> TrainingError:
    """Return the error with ways to use less memory."""
    size = recipe.per_device_train_batch_size
    ways = []
    if (smaller := halved(recipe)) is not None:
        more = f" --gradient-accumulation-steps {smaller.gradient_accumulation_steps}"
        ways.append(
            f"--auto-batch, or --per-device-train-batch-size {smaller.per_device_train_batch_size}"
            f"{more if recipe.accumulates else ''}"
        )
    if not recipe.gradient_checkpointing:
        ways.append("--set gradient_checkpointing=true")
    if recipe.lora is None:
        ways.append("an adapter instead of all weights")
    elif recipe.load_in is None and need("torch", extra="local").cuda.is_available():
        ways.append("--set load_in=4bit")
    ways.append("shorter rows" if not recipe.packing else "a smaller --max-length")
    rows = "lines" if recipe.packing else "rows"
    return TrainingError(
        f"out of memory with batches of {size} {rows[:-1] if size == 1 else rows}", hint="; or ".join(ways)
    )


def out_of_disk(folder: Path, error: BaseException) -> TrainingError:
    """Return the error of a full disk."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
    free = shutil.disk_usage(folder).free
    return TrainingError(
        f"{folder} cannot be written, with {free / 1e6:,.0f} MB free: {reason}",
        hint="free some space, then `trajkit jobs resume` resumes from the last checkpoint",
    )


def run_timed(trainer: Any, workspace: Path, n_tokens: int) -> dict[str, Any]:
    """Train, from the last checkpoint if there is one; return the fields of `Trained` about its speed.

    Args:
        trainer: A Trainer of transformers.
        workspace: Folder for checkpoints.
        n_tokens: Tokens of all rows.
    """
    cuda = need("torch", extra="local").cuda
    found = last_checkpoint(workspace)
    n_before = 0 if found is None else int(found.rpartition("-")[2])
    if cuda.is_available():
        cuda.reset_peak_memory_stats()
    began = time.monotonic()
    trainer.train(resume_from_checkpoint=found)
    seconds = time.monotonic() - began
    state = trainer.state
    n_read = n_tokens * (state.epoch or 0) * (1 - n_before / max(1, state.global_step))
    return {
        "seconds": seconds if found is None else None,
        "tokens_per_s": n_read / seconds,
        "peak_bytes": int(cuda.max_memory_allocated()) if cuda.is_available() else None,
    }
