"""Find the checkpoints from which a training resumes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

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
