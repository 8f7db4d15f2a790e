"""Models of a real shape with random weights: memory of a training against the plan's, and tokens per second.

    python bench/shapes.py [--shape qwen3-0.6b] [--layers 2] [--rows 2] [--length 256] [--steps 1]

Each setting runs in a process of its own: a LoRA of rank 16, with and without checkpoints, and the same with
the logits of all tokens in memory. One token in seven is learned, as in conversations of agents. `planned` is
what `trajkit sft local` says of the batch before it trains. On a GPU memory is what torch allocated; on a CPU
it is the growth of the process, whose allocator is told to give memory back at once. Exit 1 where memory is
more than a quarter off the plan.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.measured import again

MAX_OFF = 0.25
SETTINGS = {"lora": (False, False), "lora, checkpoints": (True, False), "lora, all logits": (False, True)}
"""Checkpoints, and all logits at once."""


@contextmanager
def peak(device: str) -> Iterator[list[int]]:
    """Most bytes that the block takes, beside what was there before."""
    import torch

    found = [0]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield found
        found[0] = torch.cuda.max_memory_allocated() - before
        return
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(0.002):
            found[0] = max(found[0], resident())

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    yield found
    is_done.set()
    watcher.join()
    found[0] -= before


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def all_logits(model: Any, batch: dict[str, Any]) -> Any:
    """The loss as it is without pieces: the logits of every token, then those of the learned ones."""
    import torch

    from trajkit.training.local.loss import WeightedLoss, logits_of

    weights = batch["weights"][:, 1:]
    logits = logits_of(model, batch)[:, :-1][weights != 0].float()
    targets = batch["input_ids"][:, 1:][weights != 0]
    found = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return WeightedLoss((found * weights[weights != 0]).sum(), weights.sum())


def measure(folder: str, setting: str, n_rows: int, length: int, n_steps: int) -> dict[str, float]:
    """Train some steps, and say what they took."""
    import numpy as np
    import torch

    from trajkit.training.local.base_model import batch_memory, load_base, measured, precision
    from trajkit.training.local.loss import weighted_loss
    from trajkit.training.local.recipe import LocalRecipe
    from trajkit.training.local.tokens.batch import Bin, collate

    has_checkpoints, has_all = SETTINGS[setting]
    recipe = LocalRecipe(gradient_checkpointing=has_checkpoints)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = measured(folder, recipe)
    model = load_base(folder, recipe).to(device).train()
    if has_checkpoints:
        model.activation_checkpointing_enable()
        model.enable_input_require_grads()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])
    random = np.random.default_rng(0)
    rows = [random.integers(sizes.n_vocabulary, size=length) for _ in range(n_rows)]
    learned = [(random.random(length) < 1 / 7).astype(np.float32) for _ in rows]
    lines = [Bin([row], [weights]) for row, weights in zip(rows, learned, strict=True)]
    batch = {name: values.to(device) for name, values in collate(lines, padding=0).items()}
    loss_of = all_logits if has_all else weighted_loss

    def step() -> float:
        with torch.autocast(device, torch.bfloat16, enabled=precision(recipe) == "bf16"):
            loss = loss_of(model, batch)
            value = loss.total / loss.weight
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return float(value.detach())

    with peak(device) as most:
        loss = step()
    fixed = 12 * sizes.n_trainable  # gradients and the optimizer's two moments, made by the first step
    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(n_steps):
        step()
    seconds = time.perf_counter() - began
    planned = batch_memory(sizes, n_rows * length, int(batch["weights"].sum())) or 0
    return {
        "planned_mb": planned / 1e6,
        "taken_mb": (most[0] - fixed) / 1e6,
        "tokens_per_s": n_steps * n_rows * length / seconds,
        "cpu_s": (time.process_time() - began_cpu) / n_steps,
        "loss": loss,
    }


def main() -> int:
    """Measure each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, default=2, help="0: all that the shape has")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.folder, asked.one, asked.rows, asked.length, asked.steps)))
        return 0
    import torch

    from trajkit import random_model

    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    print(f"{asked.shape}, {asked.layers or 'all'} layers, {asked.rows} rows of {asked.length} tokens")
    print(f"{machine}, {platform.machine()}, torch {torch.__version__}\n")
    print("| setting | planned MB | taken MB | tokens/s | CPU s a step | loss |\n|---|---|---|---|---|---|")
    is_well = True
    with tempfile.TemporaryDirectory() as folder:
        random_model(asked.shape, output=f"{folder}/model", layers=asked.layers or None)  # type: ignore[arg-type]
        sizes = ["--rows", str(asked.rows), "--length", str(asked.length), "--steps", str(asked.steps)]
        for setting in SETTINGS:
            given = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
            found = again(__file__, "--one", setting, "--folder", f"{folder}/model", *sizes, **given)
            off = found["taken_mb"] / found["planned_mb"] - 1
            is_well &= setting == "lora, all logits" or abs(off) <= MAX_OFF
            print(
                f"| {setting} | {found['planned_mb']:,.0f} | {found['taken_mb']:,.0f} |"
                f" {found['tokens_per_s']:,.0f} | {found['cpu_s']:.2f} | {found['loss']:.4f} |",
                flush=True,
            )
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
