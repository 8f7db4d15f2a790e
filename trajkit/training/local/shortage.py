"""What a machine has too little of, memory or disk: how that is recognised, and what to change."""

from __future__ import annotations

import errno
import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trajkit._core.lazy import need
from trajkit.errors import TrainingError
from trajkit.training.local.checkpoint import last_checkpoint
from trajkit.training.local.recipe import LocalRecipe

Recipe = TypeVar("Recipe", bound=LocalRecipe)
Result = TypeVar("Result")

# libraries that are not written in Python say it in words: torch's allocators, safetensors, torch.save
_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "unable to mmap")
_DISK = ("no space left", "file too large", "os error 28", "os error 27", "writing file failed")
_DISK_NUMBERS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def sparing(
    run: Callable[[Recipe], Result],
    recipe: Recipe,
    workspace: Path,
    on_message: Callable[[str], None] = lambda message: None,
) -> Result:
    """Run a training; where memory runs out and the recipe says so, again with smaller batches.

    Args:
        run: Trains by a recipe, from the last checkpoint in `workspace` if there is one.
        recipe: How.
        workspace: Folder for checkpoints.
        on_message: Told of each new size.

    Raises:
        TrainingError: Memory or disk ran out; the message says what to change.
    """
    while True:
        try:
            return run(recipe)
        except (RuntimeError, OSError, MemoryError) as error:
            if is_out_of_disk(error):
                last_checkpoint(workspace)  # what was half written makes room for the last words
                raise out_of_disk(workspace, error) from error
            if not is_out_of_memory(error):
                raise
            smaller = halved(recipe) if recipe.auto_batch else None
            if smaller is None:
                raise out_of_memory(recipe) from error
        # out of the handler, where nobody holds the frames of what failed any more
        _let_go()
        recipe = smaller
        on_message(
            f"out of memory: on with batches of {recipe.per_device_train_batch_size},"
            f" {recipe.gradient_accumulation_steps} of them in a step"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(words in text for words in _MEMORY)


def is_out_of_disk(error: BaseException) -> bool:
    """Whether an exception means that nothing more can be written."""
    if isinstance(error, OSError) and error.errno in _DISK_NUMBERS:
        return True
    text = str(error).lower()
    return any(words in text for words in _DISK) or "inline_container" in text


def halved(recipe: Recipe) -> Recipe | None:
    """The same with at most half of the rows in a batch, and as many in a step; None for the smallest."""
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
    """The error that says what to change."""
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
    """The error that says where nothing more can be written."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
    free = shutil.disk_usage(folder).free
    return TrainingError(
        f"nothing more can be written to {folder}, where {free / 1e6:,.0f} MB are free: {reason}",
        hint="make room, then `trajkit jobs resume` goes on from the last checkpoint",
    )


def _let_go() -> None:
    """Give back the memory of what nobody holds any more."""
    torch = need("torch", extra="local")
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
