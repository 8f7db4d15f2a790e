"""A million steps as `openai-sft` rows: trajkit against the loop that notebooks write, in one run.

    python bench/convert.py [--steps 1000000] [--rounds 3]

The store is synthetic: episodes of 20 steps, about 2.3 kB of text in a prompt. The programs
read the same Parquet files and write the same rows, each in a process of its own:

plain    a pandas frame of each file, `to_dict("records")`, then for each row `json.loads` of prompt and
         answer, a dict in the shape of the row, `json.dumps`
lean     the same loop over the two columns that it needs, some thousand rows at a time: for comparison
trajkit  `trajkit convert STORE --to openai-sft -o FILE`, with checks, tally and provenance

The rounds alternate, and the medians are compared: the time, and the bytes of output for each second of one
core (CPU time of all threads). A last run on a quarter of the steps shows whether memory grows; there, every
row of the three files is parsed and compared. Exit 1 when a limit is missed or a row differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.measured import again, judged, machine, peak_mb  # noqa: E402 -- found by the line above

MIN_SPEED_UP = 5.0
MIN_MB_PER_CPU_S = 100.0
MAX_GROWTH = 1.5


def plain(store: Path, goal: Path) -> None:
    """What a notebook does."""
    import pyarrow.parquet as pq

    with goal.open("w", encoding="utf-8") as file:
        for part in sorted((store / "steps").iterdir()):
            for row in pq.read_table(part).to_pandas().to_dict("records"):
                write_row(row, file)


def lean(store: Path, goal: Path) -> None:
    """The same by somebody who minds what is read."""
    import pyarrow.parquet as pq

    with goal.open("w", encoding="utf-8") as file:
        for part in sorted((store / "steps").iterdir()):
            with pq.ParquetFile(part) as parquet:
                for batch in parquet.iter_batches(4096, columns=["messages", "completion", "loss_weight"]):
                    for row in batch.to_pylist():
                        write_row(row, file)


def write_row(row: dict[str, Any], file: TextIO) -> None:
    """The loop's body."""
    if row["loss_weight"] <= 0:
        return
    said = (*json.loads(row["messages"]), json.loads(row["completion"]))
    messages = [
        {"role": each["role"], "content": "".join(block["text"] for block in each["content"])}
        for each in said
    ]
    file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def trajkit_convert(store: Path, goal: Path) -> None:
    """The thing itself, as a user runs it."""
    from trajkit.cli.main import main

    try:
        main(["convert", str(store), "--to", "openai-sft", "-o", str(goal)])
    except SystemExit as leaving:
        if leaving.code:
            raise


WRITERS = {"plain": plain, "lean": lean, "trajkit": trajkit_convert}


def contend(name: str, store: Path) -> None:
    """Run one program in this process and print what it took; its imports come before the clock starts."""
    from trajkit._core.process.memory import prefer_little_memory

    if name == "trajkit":
        prefer_little_memory()
        import trajkit.commands.convert
        import trajkit.curation.rows.file
        import trajkit.curation.rows.writers.pairs
        import trajkit.store.dataset  # noqa: F401
    else:
        import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        goal = Path(folder) / "train.jsonl"
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.perf_counter()
        WRITERS[name](store, goal)
        seconds = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_SELF)
        n_bytes = goal.stat().st_size
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "peak_mb": peak_mb(used), "n_bytes": n_bytes}))


def same_rows(store: Path) -> bool:
    """Whether all programs write the same rows."""
    with tempfile.TemporaryDirectory(dir=store.parent) as folder, contextlib.ExitStack() as stack:
        files = []
        for name, write in WRITERS.items():
            goal = Path(folder) / f"{name}.jsonl"
            with contextlib.redirect_stdout(io.StringIO()):
                write(store, goal)
            files.append(stack.enter_context(goal.open(encoding="utf-8")))
        return all(
            all(json.loads(line) == json.loads(lines[0]) for line in lines)
            for lines in zip(*files, strict=True)
        )


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contend", choices=WRITERS, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        contend(options.contend, options.store)
        return 0
    from bench.curate import make_store

    runs: dict[str, list[dict[str, float]]] = {name: [] for name in WRITERS}
    with tempfile.TemporaryDirectory() as folder:
        store, quarter = Path(folder) / "store", Path(folder) / "quarter"
        for path, n_steps in ((store, options.steps), (quarter, options.steps // 4)):
            # in a process of its own: what starts one hands its peak memory down
            maker = multiprocessing.get_context("spawn").Process(target=make_store, args=(path, n_steps))
            maker.start()
            maker.join()
        for _ in range(options.rounds):
            for name in WRITERS:
                runs[name].append(again(__file__, "--contend", name, "--store", store))
        small = again(__file__, "--contend", "trajkit", "--store", quarter)
        is_same = same_rows(quarter)
    middle = {
        name: {key: statistics.median(run[key] for run in found) for key in found[0]}
        for name, found in runs.items()
    }
    print(f"convert of {options.steps:,} steps, {options.rounds} rounds, medians; {machine()}")
    for name in WRITERS:
        found = middle[name]
        spread = ", ".join(f"{run['seconds']:.1f}" for run in runs[name])
        print(
            f"  {name:8} {found['seconds']:6.1f} s ({spread})  {found['cpu_s']:6.1f} s of CPU  "
            f"{found['n_bytes'] / 1e6 / found['cpu_s']:6.0f} MB for each  peak {found['peak_mb']:,.0f} MB"
        )
    to_lean = middle["lean"]["seconds"] / middle["trajkit"]["seconds"]
    print(f"  {to_lean:.2f} times faster than the lean loop")
    speed_up = middle["plain"]["seconds"] / middle["trajkit"]["seconds"]
    rate = middle["trajkit"]["n_bytes"] / 1e6 / middle["trajkit"]["cpu_s"]
    growth = middle["trajkit"]["peak_mb"] / small["peak_mb"]
    checks = (
        ("every row is the same in all files", is_same),
        (
            f"{speed_up:.2f} times faster than the plain way (at least {MIN_SPEED_UP:g})",
            speed_up >= MIN_SPEED_UP,
        ),
        (
            f"{rate:.0f} MB of output for each second of a core (at least {MIN_MB_PER_CPU_S:g})",
            rate >= MIN_MB_PER_CPU_S,
        ),
        (
            f"{growth:.2f} times the memory for four times the steps (at most {MAX_GROWTH:g})",
            growth <= MAX_GROWTH,
        ),
    )
    return judged(checks)


if __name__ == "__main__":
    sys.exit(main())
