"""Verbs on 20,000 conversations of ten turns each: time and peak memory of a command line.

    python bench/conversations.py [--conversations 20000]

The conversations are synthetic, four answers to each first question, with a reward each; `trajkit import`
makes the store of them, and `split --by prompt` its two sides. Each verb runs in a process of its own, so
that its peak memory is its own. Exit 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAX_SECONDS = 30.0
MAX_MB = 600.0
TURNS = 10
ANSWERS = 4
VERBS = {
    "leak": ("leak", "split/train", "split/val", "--json"),
    "push --dry-run": ("push", "store", "me/shop", "--license", "apache-2.0", "--dry-run", "--json"),
    "stats": ("stats", "store", "--json"),
    "pairs": (
        *("pairs", "split/train", "--match", "prompt", "--score", "reward", "--margin", "0.1"),
        *("-o", "pairs", "--json"),
    ),
}

_SYSTEM = "You help customers of a shop. Be short, be kind, and name the number of the order."


def write_conversations(path: Path, n_conversations: int) -> None:
    """Write the conversations as JSON lines."""
    draw = random.Random(7)
    words = ["".join(draw.choices("abcdefghijklmnoprstuvw", k=draw.randint(3, 9))) for _ in range(2000)]
    questions = [" ".join(draw.choices(words, k=12)) for _ in range(-(-n_conversations // ANSWERS))]
    with path.open("w", encoding="utf-8") as file:
        for number in range(n_conversations):
            case = number // ANSWERS
            messages = [{"role": "system", "content": _SYSTEM}]
            for turn in range(TURNS):
                asked = " ".join(draw.choices(words, k=12)) if turn else f"Order {case}: {questions[case]}"
                messages.append({"role": "user", "content": asked})
                messages.append({"role": "assistant", "content": " ".join(draw.choices(words, k=20))})
            row = {"messages": messages, "reward": draw.randint(0, 10) / 10, "task": "support"}
            file.write(json.dumps(row) + "\n")


def run(folder: Path, *arguments: str) -> None:
    """Run trajkit in a folder; what it prints is dropped."""
    program = "from trajkit.cli.main import main; main()"
    command = [sys.executable, "-c", program, *arguments]
    environment = {**os.environ, "HF_TOKEN": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"trajkit {' '.join(arguments)} failed: {done.stderr[-2000:]}")


def measure(folder: Path, verb: str) -> tuple[float, float]:
    """Seconds and megabytes of a verb, which is the only child of a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(folder), verb]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    seconds, peak_mb = json.loads(done.stdout)
    return seconds, peak_mb


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=20_000)
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "VERB"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        folder, verb = options.measure
        started = time.perf_counter()
        run(Path(folder), *VERBS[verb])
        elapsed_s = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(json.dumps([elapsed_s, peak / (1e6 if sys.platform == "darwin" else 1e3)]))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_conversations(folder / "shop.jsonl", options.conversations)
        read = ("--metric", "reward=columns.reward", "--task", "columns.task")
        run(folder, "import", "shop.jsonl", *read, "-o", "store")
        run(folder, "split", "store", "--by", "prompt", "-o", "split")
        n_bytes = sum(path.stat().st_size for path in (folder / "store").rglob("*") if path.is_file())
        print(f"{options.conversations:,} conversations, {options.conversations * TURNS:,} steps,")
        print(f"{n_bytes / 1e6:.0f} MB; {platform.machine()}, {os.cpu_count()} cores,", end=" ")
        print(f"Python {platform.python_version()}")
        missed = False
        for verb in VERBS:
            seconds, peak_mb = measure(folder, verb)
            holds = seconds <= MAX_SECONDS and peak_mb <= MAX_MB
            missed |= not holds
            print(
                f"  {'ok    ' if holds else 'MISSED'}  {verb:14} {seconds:6.1f} s (at most {MAX_SECONDS:g})"
                f"  peak {peak_mb:5,.0f} MB (at most {MAX_MB:g})",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
