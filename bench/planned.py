"""The time that a plan says, and what the training takes: the tiny model of the tests and a shape on its own.

    python bench/planned.py [--shape qwen3-0.6b] [--layers 2] [--steps 3]

Rows are random text of 200 to 400 characters with an answer of 60, two in a batch. The tiny model makes
forty times as many steps. `share` is what the training reached of the rate of a matrix product that the plan
measured, `CPU s` what all its threads took together. Exit 1 where a training takes less or more time than the
plan says.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SETTINGS: dict[str, dict[str, Any]] = {
    "lora": {},
    "lora, checkpoints": {"gradient_checkpointing": True},
    "all weights": {"lora": None, "optim": "sgd"},
}


def write_rows(goal: Path) -> None:
    """Write a store of 24 episodes of a step."""
    from trajkit.schema import Episode, Transition, message
    from trajkit.store.writer import write_episodes

    drawn = random.Random(0)

    def episode(n: int) -> Episode:
        text = "".join(drawn.choices("abcdefgh ", k=drawn.randrange(200, 400)))
        step = Transition(
            step_index=0,
            messages=(message("user", text),),
            completion=message("assistant", text[:60]),
        )
        return Episode(episode_id=f"e{n}", source="bench", steps=(step,))

    write_episodes(goal, map(episode, range(24)), kind="bench")


def main() -> int:
    """Plan and train each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, default=2, help="0: all that the shape has")
    parser.add_argument("--steps", type=int, default=3)
    asked = parser.parse_args()
    import torch

    from tests.tiny import make_tiny
    from trajkit import random_model
    from trajkit.training.local.prepare import LocalRequest, prepare
    from trajkit.training.local.recipe import LocalRecipe
    from trajkit.training.local.running.worker import work
    from trajkit.training.runs import Runs

    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{machine}, {platform.machine()}, torch {torch.__version__}\n")
    print(
        "| model | setting | planned s | taken s | CPU s | share | tokens/s |\n|---|---|---|---|---|---|---|"
    )
    is_well = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "train")
        random_model(asked.shape, output=folder / "model", layers=asked.layers or None)  # type: ignore[arg-type]
        models = (("tiny", make_tiny(folder / "tiny"), 40), (asked.shape, str(folder / "model"), 1))
        runs = Runs(folder / "runs")
        for model, base, times in models:
            for setting, fields in SETTINGS.items():
                given = {"max_steps": asked.steps * times, "per_device_train_batch_size": 2, **fields}
                recipe = LocalRecipe.model_validate({"num_processes": 1, **given})
                job = prepare(LocalRequest(base=base, train=folder / "train", recipe=recipe), runs).job
                with contextlib.redirect_stdout(sys.stderr):  # where the trainer prints
                    began = time.process_time()
                    code = work(runs, job.job_id)
                    cpu_s = time.process_time() - began
                if code != 0:
                    raise SystemExit(runs.load(job.job_id).error)
                result: Any = runs.load(job.job_id).result
                planned = job.estimate
                assert planned is not None
                taken = result["seconds"]
                is_well &= planned.least_s <= taken <= planned.most_s
                share = planned.flops / taken / planned.flops_per_s
                print(
                    f"| {model} | {setting} | {planned.least_s:.1f} to {planned.most_s:.1f} | {taken:.1f} |"
                    f" {cpu_s:.1f} | {share:.0%} | {result['tokens_per_s']:,.0f} |",
                    flush=True,
                )
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
