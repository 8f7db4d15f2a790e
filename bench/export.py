"""Export of a TensorZero database: trajkit against the plain way and against a raw copy, in one run.

    python bench/export.py [--inferences 100000] [--rounds 7]

The database is a real ClickHouse with TensorZero's schema and synthetic rows. Three programs read the same
columns of the same tables, each in a process of its own, so that its peak memory is its own:

plain    `query_df` of every table, `json.loads` on every JSON column of every row, joined by dictionaries
         into episodes, the latest feedback chosen, written as JSON lines
copy     the Arrow streams of the tables into Parquet (zstd) as they come: no join, no episode, no check
trajkit  `trajkit export --metric episode_return` into a store

The rounds alternate, and the medians are compared. Exit 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.measured import again, judged, machine, peak_mb  # noqa: E402 -- found by the line above

MIN_SPEED_UP = 5.0
MAX_MEMORY_SHARE = 1 / 3
MAX_COPY_RATIO = 3.5

INFERENCES = (
    "id, episode_id, function_name, variant_name, input, output, auxiliary_content, tags, processing_time_ms,"
    " snapshot_hash"
)
CALLS = (
    "id, inference_id, model_name, model_provider_name, system, input_messages, output, input_tokens,"
    " output_tokens, cost, finish_reason, cached, response_time_ms, ttft_ms"
)
FEEDBACK = "id, target_id, metric_name, value, tags"


def plain(client: Any, folder: Path) -> int:
    """What a data scientist writes in an afternoon."""
    inferences = client.query_df(f"SELECT {INFERENCES} FROM JsonInference")
    calls = client.query_df(f"SELECT {CALLS} FROM ModelInference")
    feedback = client.query_df(f"SELECT {FEEDBACK} FROM FloatMetricFeedback")
    latest: dict[Any, dict[str, Any]] = {}
    for row in feedback.sort_values("id", key=lambda ids: ids.map(lambda one: one.int)).to_dict("records"):
        latest.setdefault(row["target_id"], {})[row["metric_name"]] = row["value"]
    by_inference = {row["inference_id"]: row for row in calls.to_dict("records")}
    episodes: dict[Any, list[dict[str, Any]]] = {}
    for row in inferences.to_dict("records"):
        if "episode_return" not in latest.get(row["episode_id"], {}):
            continue
        call = by_inference[row["id"]]
        for name in ("input", "output"):
            row[name] = json.loads(row[name])
        for name in ("input_messages", "output"):
            call[name] = json.loads(call[name])
        episodes.setdefault(row["episode_id"], []).append(row | {"call": call})
    with (folder / "plain.jsonl").open("w", encoding="utf-8") as file:
        for episode_id, steps in episodes.items():
            steps.sort(key=lambda step: step["id"].int)
            episode = {"episode_id": episode_id, "metrics": latest[episode_id], "steps": steps}
            file.write(json.dumps(episode, default=str) + "\n")
    return sum(map(len, episodes.values()))


def copy(client: Any, folder: Path) -> int:
    """As little as can be done with the same columns."""
    import pyarrow.parquet as pq

    n_rows = 0
    queries = {"JsonInference": INFERENCES, "ModelInference": CALLS, "FloatMetricFeedback": FEEDBACK}
    for table, columns in queries.items():
        texts = columns.replace("inference_id", "toString(inference_id)").replace(
            "episode_id", "toString(episode_id)"
        )
        texts = texts.replace("id, ", "toString(id), ", 1).replace("target_id", "toString(target_id)")
        writer = None
        with client.query_arrow_stream(f"SELECT {texts} FROM {table}", use_strings=True) as stream:
            for batch in stream:
                if writer is None:
                    writer = pq.ParquetWriter(folder / f"{table}.parquet", batch.schema, compression="zstd")
                writer.write_batch(batch)
                n_rows += batch.num_rows if table == "JsonInference" else 0
        if writer is not None:
            writer.close()
    return n_rows


def trajkit_export(url: str, folder: Path) -> int:
    """The thing itself, as a user runs it."""
    from trajkit.cli.main import main

    os.chdir(folder)
    os.environ["TENSORZERO_CLICKHOUSE_URL"] = url
    try:
        main(["export", "--metric", "episode_return", "-o", "store"])
    except SystemExit as leaving:
        if leaving.code:
            raise
    return int(json.loads(Path("store/manifest.json").read_text())["counts"]["n_steps"])


def contend(name: str, url: str) -> None:
    """Run one program in this process and print what it took; its imports come before the clock starts."""
    import clickhouse_connect

    if name == "trajkit":
        from trajkit._core.process.memory import prefer_little_memory

        prefer_little_memory()
        import trajkit._core.output.page
        import trajkit.commands.export
        import trajkit.sources.open
        import trajkit.sources.tensorzero.connect.database
        import trajkit.sources.tensorzero.export.export  # noqa: F401
    else:
        # query_df needs it, and pyarrow imports it for itself where it is installed
        import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        client = clickhouse_connect.get_client(dsn=url, autogenerate_session_id=False, compress=False)
        started = time.perf_counter()
        if name == "trajkit":
            n_rows = trajkit_export(url, Path(folder))
        else:
            n_rows = {"plain": plain, "copy": copy}[name](client, Path(folder))
        elapsed_s = time.perf_counter() - started
    print(json.dumps({"seconds": elapsed_s, "peak_mb": peak_mb(), "rows": n_rows}))


def make_database(folder: Path, n_inferences: int) -> Any:
    """A ClickHouse with TensorZero's schema, as the gateway makes it, and synthetic rows."""
    import clickhouse_connect

    from bench.synthetic import fill
    from trajkit.stack.clickhouse import ClickHouse
    from trajkit.stack.gateway import create_schema
    from trajkit.stack.gateway_config import prepare_config
    from trajkit.stack.local import recipe_config

    server = ClickHouse.start(folder / "clickhouse")
    config = prepare_config(recipe_config("babyai"), folder / "config", model_url="http://127.0.0.1:9")
    asyncio.run(create_schema(config, server.secret_url))
    fill(clickhouse_connect.get_client(dsn=server.secret_url.get_secret_value()), n_inferences=n_inferences)
    return server


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inferences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--contend", choices=["plain", "copy", "trajkit"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        contend(options.contend, os.environ["BENCH_URL"])
        return 0
    names = ("plain", "copy", "trajkit")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        server = make_database(Path(folder), options.inferences)
        try:
            for _ in range(options.rounds):
                for name in names:
                    url = server.secret_url.get_secret_value()
                    results[name].append(again(__file__, "--contend", name, BENCH_URL=url))
        finally:
            server.kill()
    seconds = {name: statistics.median(run["seconds"] for run in runs) for name, runs in results.items()}
    peaks = {name: statistics.median(run["peak_mb"] for run in runs) for name, runs in results.items()}
    print(f"export of {options.inferences:,} inferences, {options.rounds} rounds, medians; {machine()}")
    for name in names:
        spread = ", ".join(f"{run['seconds']:.2f}" for run in results[name])
        print(
            f"  {name:8} {seconds[name]:6.2f} s ({spread})  peak {peaks[name]:,.0f} MB"
            f"  {results[name][0]['rows']:,} rows"
        )
    speed_up = seconds["plain"] / seconds["trajkit"]
    memory = peaks["trajkit"] / peaks["plain"]
    copies = seconds["trajkit"] / seconds["copy"]
    checks = (
        (
            f"{speed_up:.2f} times faster than the plain way (at least {MIN_SPEED_UP:g})",
            speed_up >= MIN_SPEED_UP,
        ),
        (f"{memory:.2f} of its peak memory (at most {MAX_MEMORY_SHARE:.2f})", memory <= MAX_MEMORY_SHARE),
        (f"{copies:.2f} times a raw copy (at most {MAX_COPY_RATIO:g})", copies <= MAX_COPY_RATIO),
    )
    return judged(checks)


if __name__ == "__main__":
    sys.exit(main())
