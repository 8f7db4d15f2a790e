"""Recognise a lack of memory or disk space, and say what to change."""

from __future__ import annotations

import errno
import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trajkit._core.lazy import need
from trajkit.errors import TrainingError
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.checkpoint import last_checkpoint

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
        _let_go()
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


def _let_go() -> None:
    """Free the memory of unreferenced objects."""
    torch = need("torch", extra="local")
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
