"""Look at a gigabyte of chat logs: seconds from typing to the page, beside DuckDB's count of the same file.

    python bench/inspect_chats.py [--gigabytes 1]

The file has conversations of one to six turns, no two alike, as JSON lines. `trajkit inspect` counts all
lines and reads an evenly spread part; DuckDB only counts the rows, parsing all of them
(`SELECT count(*), sum(len(messages)) FROM read_json`). Both run as programs of their own, with the file in
the page cache. The estimate of the number of conversations must be within 2 % of the true one. Exit 1 when a
limit is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS = 10.0
_COUNT = "SELECT count(*), sum(len(messages)) FROM read_json({path!r}, format='newline_delimited')"


def make(path: Path, n_bytes: int) -> int:
    """Write the file; the number of its conversations."""
    draw = random.Random(1)
    words = [f"{stem}{end}" for stem in ("time", "door", "key", "walk", "find") for end in ("", "s", "ing")]
    texts = [" ".join(draw.choices(words, k=60)) for _ in range(5000)]
    n = n_written = 0
    with path.open("w", encoding="utf-8") as file:
        while n_written < n_bytes:
            messages = [{"role": "system", "content": f"{n} {draw.choice(texts)}"}]
            for _ in range(draw.randint(1, 6)):
                messages.append({"role": "user", "content": draw.choice(texts)})
                messages.append({"role": "assistant", "content": draw.choice(texts)})
            n_written += file.write(json.dumps({"messages": messages}) + "\n")
            n += 1
    return n


def seconds(*command: str) -> tuple[float, str]:
    """How long a program takes, and what it prints."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def main() -> int:
    """Make the file, look at it, compare with the limits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.jsonl"
        n = make(path, int(asked.gigabytes * 1e9))
        took, text = seconds("-m", "trajkit", "inspect", str(path), "--json")
        peer, _ = seconds("-c", f"import duckdb; duckdb.sql({_COUNT.format(path=str(path))!r}).fetchall()")
        found = json.loads(text)
        estimate = found["estimates_of_the_whole"]["n_episodes"] if found["sample"] else n
    print(f"{n:,} conversations, {asked.gigabytes:g} GB")
    print(f"trajkit inspect  {took:5.1f} s  estimate {estimate:,} ({estimate / n - 1:+.2%})")
    print(f"duckdb count     {peer:5.1f} s")
    print(f"ratio            {took / peer:5.2f}")
    return int(took > MOST_SECONDS or abs(estimate / n - 1) > 0.02)


if __name__ == "__main__":
    sys.exit(main())
