"""Search a store for secrets, and take them out: megabytes of text for a second of one core.

    python bench/redact.py [--steps 50000] [--rounds 3]

The store is that of bench/curate.py: steps with prompts of 2.3 kB, no two alike. In one step of fifty the
prompt has an e-mail address, a token and a home path, all drawn. Three jobs:

clean    search a store in which nothing is (what publishing does each time)
scan     search the one with secrets
redact   write it without them: read, search, replace, hash and write what changed, copy the rest

Time is that of all threads of the process, so that the rate is that of one core; before it, each job has run
once. Exit 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.curate import make_store  # noqa: E402 -- found by the line above

MIN_MB_PER_S = 50.0
ONE_OF = 50


def with_secrets(store: Path, goal: Path) -> None:
    """The same store, with three values in one prompt of fifty."""
    from trajkit.curation.derive import deriving

    drawn = "md5(episode_id || step_index)"
    said = (
        f"'mail ' || substr({drawn}, 1, 9) || '@corp.io, token gh' || 'p_' || {drawn} || 'Ab3d, see /home/u'"
        f" || substr({drawn}, 3, 6) || '/x'"
    )
    messages = f"CAST(replace(CAST(messages AS VARCHAR), 'Your mission', {said} || '. Your mission') AS JSON)"
    with deriving(store) as derivation:
        derivation.connection.execute(
            f"CREATE TEMP VIEW with_secrets AS SELECT * REPLACE (CASE WHEN hash(episode_id, step_index) %"
            f" {ONE_OF} = 0 THEN {messages} ELSE messages END AS messages) FROM steps"
        )
        derivation.write(goal, verb="bench", arguments={}, steps="with_secrets")


def n_bytes(store: Path) -> int:
    """Size of the texts of its steps."""
    from trajkit.curation.derive import deriving
    from trajkit.curation.redaction.column import text_columns

    names = [column.name for column in text_columns("steps") if column.sql_type != "VARCHAR[]"]
    sizes = " + ".join(f"coalesce(strlen(CAST({name} AS VARCHAR)), 0)" for name in names)
    with deriving(store) as derivation:
        ((size,),) = derivation.connection.execute(f"SELECT sum({sizes}) FROM steps").fetchall()
    return int(size)


def main() -> int:
    """Make the stores, measure, compare with the limits."""
    from trajkit.curation.redact import redact, scan

    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_store(folder / "clean", asked.steps)
        with_secrets(folder / "clean", folder / "secret")
        n_found = scan(folder / "secret").n_found
        print(
            f"{asked.steps:,} steps, {n_bytes(folder / 'secret') / 1e6:,.0f} MB of text, {n_found:,} values"
        )
        goals = itertools.count()
        jobs: dict[str, tuple[Path, Callable[[], object]]] = {
            "clean": (folder / "clean", lambda: scan(folder / "clean")),
            "scan": (folder / "secret", lambda: scan(folder / "secret")),
            "redact": (
                folder / "secret",
                lambda: redact(folder / "secret", folder / f"redacted-{next(goals)}"),
            ),
        }
        rates = {}
        for job, (store, run) in jobs.items():
            size, seconds = n_bytes(store), []
            run()  # imports, and files that the system keeps
            for _ in range(asked.rounds):
                began = time.process_time()
                run()
                seconds.append(time.process_time() - began)
            rates[job] = size / 1e6 / statistics.median(seconds)
            print(
                f"{job:8} {rates[job]:7.0f} MB/s per core  ({statistics.median(seconds):.2f} s of one core)"
            )
        left = scan(folder / "redacted-0").n_found
    is_good = min(rates.values()) >= MIN_MB_PER_S and not left and n_found
    print(f"limit: {MIN_MB_PER_S:g} MB/s for each, nothing left: {'kept' if is_good else 'MISSED'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
