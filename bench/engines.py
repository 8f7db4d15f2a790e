"""The same job by the local engine and on Ray, with as many workers: how much Ray costs.

    python bench/engines.py [--job mask] [--steps 200000] [--workers 2] [--rounds 3]

The job is `trajkit mask`, `redact`, or `dedupe --near 0.9` (near), over the store of bench/curate.py. Ray is
a cluster of this machine, which is started before the clock: a cluster runs for longer than a job. Exit 1
when Ray takes more than 1.3 times as long, or a digest differs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)

from bench.curate import make_store  # noqa: E402 -- found by the line above
from trajkit.curation.masks.mask import mask  # noqa: E402
from trajkit.curation.redact import redact  # noqa: E402
from trajkit.curation.selection.dedupe import dedupe, groups_path  # noqa: E402
from trajkit.engines.engine import Engine, engine_named  # noqa: E402
from trajkit.engines.ray_cluster import connected  # noqa: E402
from trajkit.schema import Manifest  # noqa: E402

MOST = 1.3
JOBS: dict[str, Callable[[Path, Path, Engine | None], Manifest | None]] = {
    "mask": lambda store, goal, engine: (
        mask(store, goal, reasons=["truncated", "invalid"], engine=engine).manifest
    ),
    "redact": lambda store, goal, engine: redact(store, goal, engine=engine).manifest,
    "near": lambda store, goal, engine: dedupe(store, goal, near=0.9, engine=engine)[0],
}


def seconds(job: str, store: Path, goal: Path, engine: Engine | None) -> tuple[float, str]:
    """Time of a job, and the digest of its store."""
    began = time.perf_counter()
    manifest = JOBS[job](store, goal, engine)
    took = time.perf_counter() - began
    shutil.rmtree(goal)
    groups_path(goal).unlink(missing_ok=True)
    assert manifest is not None
    return took, manifest.digest


def main() -> int:
    """Print the times and the ratio; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=JOBS, default="mask")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    connected("ray", asked.workers)
    engines = {on: engine_named(on, asked.workers) for on in ("local", "ray")} | {"none": None}
    times: dict[str, list[float]] = {on: [] for on in engines}
    digests = set()
    with tempfile.TemporaryDirectory(prefix="trajkit-bench-") as folder:
        store = Path(folder) / "store"
        make_store(store, asked.steps)
        for _ in range(asked.rounds):
            for on, engine in engines.items():
                took, digest = seconds(asked.job, store, Path(folder) / "goal", engine)
                times[on].append(took)
                digests.add(digest)
    middle = {on: statistics.median(each) for on, each in times.items()}
    ratio = middle["ray"] / middle["local"]
    print(f"{asked.job} of {asked.steps:,} steps, {asked.workers} workers, median of {asked.rounds}:")
    for on, took in middle.items():
        print(f"  {on if on != 'none' else 'one process':12} {took:6.1f} s")
    print(f"ray takes {ratio:.2f} times as long as local; at most {MOST}")
    print("one digest" if len(digests) == 1 else f"digests differ: {sorted(digests)}")
    return int(ratio > MOST or len(digests) != 1)


if __name__ == "__main__":
    sys.exit(main())
