"""Curation of a store: trajkit against pandas and against `datasets`, in one run.

    python bench/curate.py [--steps 1000000] [--rounds 1]

The store is synthetic: episodes of 20 steps, four attempts at each seed, about 2.3 kB of text in a prompt, a
tenth of the steps the same in all attempts. Four jobs, each of them from the files of the store to files:

select      the best attempt of every seed that is neither trivial nor hopeless, with its steps
statistics  for each seed how many attempts, how many successes, mean and best return
exact       of the steps with the same prompt and answer one each
near        of the steps with the same action and nearly the same prompt one each (similarity 0.9)

Each program runs in a process of its own, so that its peak memory is its own. `datasets` does what its
users do: `filter` and `map` with a function of Python. For `near` both peers sign each distinct prompt with
the same library that trajkit uses, a prompt at a time. Exit 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.measured import again, judged, machine, peak_mb  # noqa: E402 -- found by the line above
from bench.synthetic import PHRASES, STEPS_PER_EPISODE  # noqa: E402

MIN_SPEED_UP = 10.0
MAX_MINUTES = 5.0
JOBS = ("select", "statistics", "exact", "near")
PROGRAMS = ("trajkit", "pandas", "datasets")
ATTEMPTS = 4
SIMILARITY = 0.9
SHINGLE = 5

_SYSTEM = (
    "You steer a robot through a small world of square tiles. Choose one action at a time: turn left, turn"
    " right, go forward, pick up, drop, toggle. Distances count tiles from where you stand, in the direction"
    " you face. You do not see behind you or through walls. Your mission: go to the grey box number "
)


def make_store(goal: Path, n_steps: int, *, n_lines: int = 40, grows: bool = False) -> None:
    """Write the synthetic store, 50,000 steps at a time.

    Args:
        goal: The folder to write.
        n_steps: How many.
        n_lines: Lines of what the agent sees at a step.
        grows: Whether a prompt also has all that the episode had before it; the store keeps what is new.
    """
    from trajkit.schema import FeedbackKind, Metric, MetricLevel
    from trajkit.store.engine import connect
    from trajkit.store.layout import METRICS, TABLES
    from trajkit.store.writer import StoreWriter

    def relation(table: str, given: dict[str, str], rows: str) -> str:
        columns = [
            f"{given.get(column.name, 'NULL')} AS {column.name}"
            for column in TABLES[table]
            if column.sql_type != METRICS or column.name in given
        ]
        return f"(SELECT {', '.join(columns)} FROM {rows})"

    phrases = "[" + ", ".join(f"'{phrase}'" for phrase in PHRASES) + "]"
    episode = "'e' || lpad(CAST({} AS VARCHAR), 9, '0')"
    # a tenth of the steps does not depend on the attempt
    what = f"hash(e // {ATTEMPTS}, s, CASE WHEN hash(e // {ATTEMPTS}, s) % 10 = 0 THEN 0 ELSE e END)"
    seen = (
        f"array_to_string(list_transform(range({n_lines}), lambda x: {phrases}[CAST(hash({what}, x) % "
        f"{len(PHRASES)} AS BIGINT) + 1] || ', tile ' || (hash(x, {what}) % 1000)), chr(10))"
    )
    text = "[{{'type': 'text', 'text': {}}}]"
    system = f"{{'role': 'system', 'content': {text.format(f'$t${_SYSTEM}$t$ || (e // {ATTEMPTS})')}}}"
    user = f"{{'role': 'user', 'content': {text.format(seen)}}}"
    messages = f"to_json([{system}, {user}])"
    if grows:  # the system message, and two messages for each step before
        messages = f"CASE WHEN s = 0 THEN {messages} ELSE to_json([{user}]) END"
    answer = "'go forward ' || (hash(e, s) % 3)"
    metrics = (Metric(name="episode_return", level=MetricLevel.EPISODE, kind=FeedbackKind.FLOAT),)
    n_episodes, at_once = n_steps // STEPS_PER_EPISODE, 2_500
    with connect() as connection, StoreWriter(goal, kind="bench", metrics=metrics) as writer:
        for first in range(0, n_episodes, at_once):
            rows = f"range({first}, {min(first + at_once, n_episodes)}) AS r(e)"
            value = f"CASE WHEN hash(e // {ATTEMPTS}) % 5 = 0 THEN 1.0 ELSE hash(e, 7) % 1000 / 1000.0 END"
            writer.add(
                connection,
                episodes=relation(
                    "episodes",
                    {
                        "episode_id": episode.format("e"),
                        "source": "'bench'",
                        "env_id": "'babyai'",
                        "task": "'goto'",
                        "seed": f"e // {ATTEMPTS}",
                        "purpose": "'train'",
                        "n_steps": str(STEPS_PER_EPISODE),
                        "outcome": f"CASE WHEN {value} > 0.5 THEN 'success' ELSE 'failure' END",
                        "metrics": f"struct_pack(episode_return := {value})",
                        "tags": "'{}'",
                    },
                    rows,
                ),
                steps=relation(
                    "steps",
                    {
                        "episode_id": episode.format("e"),
                        "step_index": "s",
                        "n_prompt_kept": "CASE WHEN s = 0 THEN 0 ELSE 2 * s + 1 END" if grows else "0",
                        "messages": messages,
                        "completion": f"to_json({{'role': 'assistant', 'content': {text.format(answer)}}})",
                        "action": f"to_json({answer})",
                        "action_executed": answer,
                        "loss_weight": "1.0",
                    },
                    f"{rows}, range({STEPS_PER_EPISODE}) AS q(s)",
                ),
                feedback=relation("feedback", {}, "range(0)"),
            )
        writer.finish()


def with_trajkit(job: str, store: Path, folder: Path) -> int:
    """The thing itself."""
    from trajkit.curation.selection.dedupe import dedupe
    from trajkit.curation.selection.select import select

    if job == "select":
        return select(store, folder / "out", where="0 < avg < 1 and rank == 1")[1].n_episodes_out
    if job == "statistics":
        asked = "n > 0 and n_success >= 0 and avg > -1 and best > -1"
        return select(store, None, where=asked)[1].n_episodes_out // ATTEMPTS
    options: dict[str, Any] = {"exact": True} if job == "exact" else {"near": SIMILARITY, "shingle": SHINGLE}
    _, entry = dedupe(store, folder / "out", **options)
    n_gone = sum(left.n_steps for left in entry.left) + sum(masked.n_steps for masked in entry.masked)
    return entry.n_steps_in - n_gone


def with_pandas(job: str, store: Path, folder: Path) -> int:
    """What a data scientist writes: everything in memory."""
    import pandas as pd

    if job in ("select", "statistics"):
        episodes = pd.read_parquet(store / "episodes")
        episodes["score"] = [metrics["episode_return"] for metrics in episodes["metrics"]]
        episodes["won"] = episodes["outcome"] == "success"
        grouped = episodes.groupby(["env_id", "task", "seed"])
        if job == "statistics":
            found = grouped.agg(
                n=("score", "size"), won=("won", "sum"), avg=("score", "mean"), best=("score", "max")
            )
            found.to_parquet(folder / "out.parquet")
            return len(found)
        mean = grouped["score"].transform("mean")
        chosen = episodes[(mean > 0) & (mean < 1)]
        chosen = chosen.sort_values("score", ascending=False).groupby(["env_id", "task", "seed"]).head(1)
        steps = pd.read_parquet(store / "steps")
        steps = steps[steps["episode_id"].isin(set(chosen["episode_id"]))]
        chosen.to_parquet(folder / "episodes.parquet")
        steps.to_parquet(folder / "steps.parquet")
        return len(chosen)
    steps = pd.read_parquet(store / "steps")
    if job == "exact":
        kept = steps.drop_duplicates(["messages", "completion"])
    else:
        steps = steps.reset_index(drop=True)
        distinct = steps.drop_duplicates(["messages", "action"])
        near = set(_near(zip(distinct.index, distinct["messages"], distinct["action"], strict=True)))
        kept = distinct[~distinct.index.isin(near)]
    kept.to_parquet(folder / "steps.parquet")
    return len(kept)


def with_datasets(job: str, store: Path, folder: Path) -> int:
    """What a user of Hugging Face's `datasets` writes: a function of Python for each row."""
    import datasets

    datasets.disable_progress_bars()

    def load(table: str) -> Any:
        files = sorted(str(path) for path in (store / table).glob("*.parquet"))
        return datasets.load_dataset(
            "parquet", data_files=files, split="train", cache_dir=str(folder / "cache")
        )

    if job in ("select", "statistics"):
        episodes = load("episodes")
        groups: dict[Any, list[tuple[float, bool, str]]] = {}

        def note(row: dict[str, Any]) -> None:
            key = (row["env_id"], row["task"], row["seed"])
            attempt = (row["metrics"]["episode_return"], row["outcome"] == "success", row["episode_id"])
            groups.setdefault(key, []).append(attempt)

        episodes.map(note)
        if job == "statistics":
            rows = [
                {
                    "seed": key[2],
                    "n": len(found),
                    "n_success": sum(won for _, won, _ in found),
                    "avg": statistics.fmean(score for score, _, _ in found),
                    "best": max(score for score, _, _ in found),
                }
                for key, found in groups.items()
            ]
            datasets.Dataset.from_list(rows).to_parquet(folder / "out.parquet")
            return len(rows)
        best = {
            max(found)[2]
            for found in groups.values()
            if 0 < statistics.fmean(score for score, _, _ in found) < 1
        }
        episodes.filter(lambda row: row["episode_id"] in best).to_parquet(folder / "episodes.parquet")
        load("steps").filter(lambda row: row["episode_id"] in best).to_parquet(folder / "steps.parquet")
        return len(best)
    steps = load("steps")
    seen: set[bytes] = set()

    def is_new(*texts: str) -> bool:
        key = hashlib.md5("\0".join(texts).encode()).digest()
        return key not in seen and not seen.add(key)  # type: ignore[func-returns-value]

    if job == "exact":
        kept = steps.filter(lambda row: is_new(_text(row["messages"]), _text(row["completion"])))
    else:
        distinct = steps.filter(lambda row: is_new(_text(row["messages"]), _text(row["action"])))
        rows = ((i, _text(row["messages"]), _text(row["action"])) for i, row in enumerate(distinct))
        near = set(_near(rows))
        kept = distinct.filter(lambda row, i: i not in near, with_indices=True)
    kept.to_parquet(folder / "steps.parquet")
    return len(kept)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _near(rows: Iterable[tuple[int, str, str]]) -> Iterator[int]:
    """The rows that are nearly the same as one before them, with the same action."""
    import rensa

    by_action: dict[str, tuple[Any, dict[int, Any]]] = {}
    for number, text, action in rows:
        words = text.split()
        minhash = rensa.RMinHash(128, 1)
        minhash.update([" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))])
        if action not in by_action:
            by_action[action] = (rensa.RMinHashLSH(SIMILARITY, 128, 16), {})
        index, known = by_action[action]
        if any(known[other].jaccard(minhash) >= SIMILARITY for other in index.query(minhash)):
            yield number
        else:
            index.insert(number, minhash)
            known[number] = minhash


def contend(program: str, job: str, store: Path) -> None:
    """Run one program on one job in this process and print what it took; imports come before the clock."""
    if program == "trajkit":
        from trajkit._core.process.memory import prefer_little_memory

        prefer_little_memory()
        import trajkit.curation.selection.dedupe
        import trajkit.curation.selection.select  # noqa: F401
    elif program == "datasets":
        import datasets  # noqa: F401
    # pyarrow imports pandas for itself where it is installed
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import rensa  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run = {"trajkit": with_trajkit, "pandas": with_pandas, "datasets": with_datasets}[program]
        n_rows = run(job, store, Path(folder))
        elapsed_s = time.perf_counter() - started
    print(json.dumps({"seconds": elapsed_s, "peak_mb": peak_mb(), "rows": n_rows}))


def measure(program: str, job: str, store: Path) -> dict[str, float]:
    """Run one program in a process of its own."""
    offline = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    found: dict[str, float] = again(__file__, "--contend", program, job, store, **offline)
    return found


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--make", metavar="STORE", help=argparse.SUPPRESS)
    parser.add_argument("--contend", nargs=3, metavar=("PROGRAM", "JOB", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        program, job, store = options.contend
        contend(program, job, Path(store))
        return 0
    if options.make:
        make_store(Path(options.make), options.steps)
        return 0
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        # in a process of its own too: a child begins with the peak of the process that started it
        made = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--steps",
            str(options.steps),
            "--make",
            str(store),
        ]
        subprocess.run(made, check=True)
        for _ in range(options.rounds):
            for job in JOBS:
                for program in PROGRAMS:
                    found.setdefault((job, program), []).append(measure(program, job, store))
    print(f"curation of {options.steps:,} steps, {options.rounds} rounds, medians; {machine()}")
    seconds = {at: statistics.median(run["seconds"] for run in runs) for at, runs in found.items()}
    for (job, program), runs in found.items():
        peak_mb = statistics.median(run["peak_mb"] for run in runs)
        ratio = seconds[job, program] / seconds[job, "trajkit"]
        print(
            f"  {job:10} {program:8} {seconds[job, program]:8.2f} s  {ratio:6.1f} x  peak {peak_mb:7,.0f} MB"
            f"  {runs[0]['rows']:,} rows"
        )
    checks = [
        (
            f"{job}: {speed_up:.1f} times faster than datasets (at least {MIN_SPEED_UP:g})",
            speed_up >= MIN_SPEED_UP,
        )
        for job in ("select", "statistics")
        for speed_up in [seconds[job, "datasets"] / seconds[job, "trajkit"]]
    ]
    limit_s = MAX_MINUTES * 60 * options.steps / 1_000_000
    checks += [
        (
            f"{job}: {seconds[job, 'trajkit']:.1f} s (at most {limit_s:.0f})",
            seconds[job, "trajkit"] <= limit_s,
        )
        for job in ("exact", "near")
    ]
    return judged(checks)


if __name__ == "__main__":
    sys.exit(main())
