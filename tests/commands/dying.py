"""A worker that is killed in the middle, once; processes import it by name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from trajkit.curation.rows import made
from trajkit.curation.rows.made import make_shard as _make_shard


def make_shard(task: made.Task) -> made.Made:
    """Make the rows of a shard; the first process that has the last one is killed."""
    if task.span.highest_id == "e010" and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _make_shard(task)  # not that of `made`, in whose place a test puts this one
