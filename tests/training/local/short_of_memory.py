"""Trainings that run out of memory and of disk; a folder is named, and found.json in it has what they say."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

from trajkit.errors import TrainingError
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.train import train

folder = Path(sys.argv[1])
started: dict[str, Any] = {"per_device_train_batch_size": 64, "max_steps": 2, "num_threads": 1}


def run(name: str, **recipe: Any) -> dict[str, Any]:
    told: list[str] = []
    try:
        done = train(
            str(folder / "base"),
            folder / "rows.arrow",
            folder / name,
            LocalRecipe(**{**started, **recipe}),
            workspace=folder / f"work-{name}",
            on_message=told.append,
        )
    except TrainingError as error:
        return {"error": error.message, "hint": error.hint}
    return {**done.model_dump(mode="json"), "told": told}


def limit(kind: int, n_bytes: int) -> None:
    resource.setrlimit(kind, (n_bytes, resource.RLIM_INFINITY))


# what the libraries take once is taken before the limit is set
run("warm", max_steps=1, per_device_train_batch_size=1)
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit(resource.RLIMIT_AS, in_use + 200_000_000)
found = {"memory": run("memory"), "spared": run("spared", auto_batch=True)}
limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
limit(resource.RLIMIT_FSIZE, 100_000)
found["disk"] = run("disk", max_steps=1, per_device_train_batch_size=1)
(folder / "found.json").write_text(json.dumps(found))
