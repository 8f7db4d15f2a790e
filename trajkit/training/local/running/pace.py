"""Run a trainer and measure how fast it is, and what memory it takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
from trajkit.training.local.running.checkpoint import last_checkpoint


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
