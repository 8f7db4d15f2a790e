"""Conversations that grow: what a store of them costs, against one full prompt per row, in one run.

    python bench/long_prompts.py [--episodes 10000] [--turns 100]

The database is a real ClickHouse with TensorZero's schema. An episode is a conversation of up to `--turns`
turns, 600 bytes each, so that the last prompt of the longest has 60 kB; every prompt repeats what was said
before, as TensorZero stores it. Two programs read it, each in a process of its own:

trajkit  `trajkit export` into a store, where a prompt is what is new since the step before
full     one row per inference with its full prompt, as it comes, into Parquet (zstd)

They run on conversations of half the turns too: twice the turns are twice the new text, and four times the
prompts. Exit 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.measured import again, judged, machine, peak_mb  # noqa: E402 -- found by the line above
from bench.synthetic import BASE_MS, PHRASES, uuid7  # noqa: E402

TURN_BYTES = 600
MAX_GROWTH = 2.6
"""Twice the turns: twice the text is twice the size, and four times is what must not be."""
MAX_PEAK_MB = 1000
MAX_SIZE_SHARE = 0.5
PROGRAMS = ("trajkit", "full")


class Run(NamedTuple):
    """What one program took, and what it left."""

    seconds: float
    peak_mb: float
    rows: int
    size_mb: float
    """Of its files."""
    text_mb: float
    """Of the prompts in its files."""


def said(turn: str, side: str) -> str:
    """SQL for what one side said at a turn: about half of `TURN_BYTES`, and hardly ever twice the same."""
    phrases = "[" + ", ".join(f"'{phrase}'" for phrase in PHRASES) + "]"
    n = TURN_BYTES // 2 // 34
    return (
        f"arrayStringConcat(arrayMap(x -> concat({phrases}[sipHash64(episode, {turn}, x, '{side}')"
        f" % {len(PHRASES)} + 1], ' ', toString(sipHash64({turn}, x, episode, '{side}') % 1000)),"
        f" range({n})), '; ')"
    )


def fill(client: Any, *, n_episodes: int, n_turns: int) -> None:
    """Insert conversations of 1 to `n_turns` turns, evenly spread, a model call each."""
    message = (
        "concat('{\"role\":\"', if(m % 2 = 0, 'user', 'assistant'),"
        ' \'","content":[{"type":"text","text":\','
        f" toJSONString(if(m % 2 = 0, {said('intDiv(m, 2)', 'u')}, {said('intDiv(m, 2)', 'a')})), '}}]}}')"
    )
    prompt = f"concat('[', arrayStringConcat(arrayMap(m -> {message}, range(2 * turn + 1)), ','), ']')"
    answer = f'concat(\'[{{"type":"text","text":\', toJSONString({said("turn", "a")}), \'}}]\')'
    ms = f"({BASE_MS} + episode * 200000 + turn * 1000)"
    inference = uuid7(f"{ms} + 1", "episode, turn, 1")
    steps = (
        f"(SELECT number AS episode, arrayJoin(range(1 + number % {n_turns})) AS turn"
        f" FROM numbers({n_episodes}))"
    )
    # the text of a block grows with the square of the turns: few rows make one
    settings = "SETTINGS max_block_size = 64, max_insert_threads = 1, min_insert_block_size_bytes = 100000000"
    client.command(f"""
        INSERT INTO ChatInference (id, function_name, variant_name, episode_id, input, output, tool_params,
            inference_params, processing_time_ms, tags)
        SELECT {inference}, 'talk', 'plain', {uuid7(f"{BASE_MS} + episode * 200000", "episode, 2")},
            concat('{{"messages":', {prompt}, '}}'), {answer}, '', '{{}}', 20,
            map('trajkit.task', 'talk', 'trajkit.seed', toString(episode))
        FROM {steps} {settings}
    """)
    client.command(f"""
        INSERT INTO ModelInference (id, inference_id, raw_request, raw_response, model_name,
            model_provider_name, input_tokens, output_tokens, response_time_ms, system, input_messages,
            output, finish_reason)
        SELECT {uuid7(f"{ms} + 2", "episode, turn, 3")}, {inference}, '', '', 'agent', 'stand_in', 200, 20,
            19, NULL, {prompt}, {answer}, 'stop'
        FROM {steps} {settings}
    """)


def exported(url: str, folder: Path) -> Run:
    """`trajkit export`, and what is in its store."""
    import duckdb

    from trajkit.cli.main import run

    os.chdir(folder)
    os.environ["TENSORZERO_CLICKHOUSE_URL"] = url
    started = time.perf_counter()
    code = run(["export", "-o", "store"])
    seconds = time.perf_counter() - started
    if code:
        raise SystemExit(code)
    peak = peak_mb()
    with duckdb.connect() as connection:
        ((rows, text),) = connection.execute(
            "SELECT count(*), sum(strlen(messages)) FROM 'store/steps/*.parquet'"
        ).fetchall()
    return Run(seconds, peak, rows, size_mb(folder), float(text) / 1e6)


def in_full(url: str, folder: Path) -> Run:
    """Every row with its whole prompt."""
    import clickhouse_connect
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    client = clickhouse_connect.get_client(dsn=url, autogenerate_session_id=False, compress=False)
    writer, rows, text = None, 0, 0
    started = time.perf_counter()
    sql = (
        "SELECT toString(i.id), toString(i.episode_id), m.input_messages, m.output, m.model_name,"
        " m.input_tokens, m.output_tokens FROM ModelInference AS m"
        " INNER JOIN ChatInference AS i ON m.inference_id = i.id"
    )
    with client.query_arrow_stream(sql, use_strings=True) as stream:
        for batch in stream:
            writer = writer or pq.ParquetWriter(folder / "full.parquet", batch.schema, compression="zstd")
            writer.write_batch(batch)
            rows += batch.num_rows
            lengths: Any = pc.sum(pc.binary_length(batch.column(2)))
            text += lengths.as_py() or 0
    if writer is not None:
        writer.close()
    return Run(time.perf_counter() - started, peak_mb(), rows, size_mb(folder), text / 1e6)


def size_mb(folder: Path) -> float:
    """What lies in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.parquet")) / 1e6


def contend(name: str, url: str) -> None:
    """Run one program in this process and print what it took."""
    if name == "trajkit":
        from trajkit._core.process.memory import prefer_little_memory

        prefer_little_memory()
        import trajkit.commands.export
        import trajkit.sources.tensorzero.connect.database
        import trajkit.sources.tensorzero.export.export  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        found = {"trajkit": exported, "full": in_full}[name](url, Path(folder))
        os.chdir("/")
    print(json.dumps(found._asdict()))


def run_all(folder: Path, n_episodes: int, n_turns: int) -> dict[tuple[str, int], Run]:
    """Both programs on conversations of half the turns and of all."""
    import clickhouse_connect
    from pydantic import SecretStr

    from trajkit.stack.clickhouse import ClickHouse
    from trajkit.stack.gateway import create_schema
    from trajkit.stack.gateway_config import prepare_config
    from trajkit.stack.local import recipe_config

    config = prepare_config(recipe_config("babyai"), folder / "config", model_url="http://127.0.0.1:9")
    runs = {}
    with ClickHouse.start(folder / "clickhouse") as server:
        for turns in (n_turns // 2, n_turns):
            url = server.url_for(server.user, database=f"turns_{turns}")
            asyncio.run(create_schema(config, SecretStr(url)))
            fill(clickhouse_connect.get_client(dsn=url), n_episodes=n_episodes, n_turns=turns)
            for name in PROGRAMS:
                found = runs[name, turns] = Run(**again(__file__, "--contend", name, BENCH_URL=url))
                print(
                    f"  {name:8} {turns:4} turns  {found.rows:9,} rows  {found.seconds:7.2f} s"
                    f"  peak {found.peak_mb:6,.0f} MB  {found.size_mb:8,.1f} MB on disk"
                    f"  {found.text_mb:9,.1f} MB of prompts",
                    flush=True,
                )
            server.ask(f"DROP DATABASE turns_{turns}")
    return runs


def verdicts(runs: dict[tuple[str, int], Run], n_turns: int) -> list[tuple[str, bool]]:
    """What was found, and whether it is within its limit."""
    half, whole = (runs["trajkit", turns] for turns in (n_turns // 2, n_turns))
    half_full, full = (runs["full", turns] for turns in (n_turns // 2, n_turns))
    text, size = whole.text_mb / half.text_mb, whole.size_mb / half.size_mb
    seconds, memory = whole.seconds / half.seconds, whole.peak_mb / half.peak_mb
    share = whole.size_mb / full.size_mb
    return [
        (f"prompts in the store grow {text:.2f} times with twice the turns (at most {MAX_GROWTH:g}); in full"
         f" {full.text_mb / half_full.text_mb:.2f} times", text <= MAX_GROWTH),
        (f"the store grows {size:.2f} times (at most {MAX_GROWTH:g})", size <= MAX_GROWTH),
        (f"the time grows {seconds:.2f} times (at most {MAX_GROWTH:g}); in full"
         f" {full.seconds / half_full.seconds:.2f} times", seconds <= MAX_GROWTH),
        (f"the store has {share:.2f} of the size of full prompts (at most {MAX_SIZE_SHARE:g})",
         share <= MAX_SIZE_SHARE),
        (f"the peak memory grows {memory:.2f} times (at most {MAX_GROWTH:g}) and is {whole.peak_mb:,.0f} MB"
         f" (at most {MAX_PEAK_MB:,})", memory <= MAX_GROWTH and whole.peak_mb <= MAX_PEAK_MB),
    ]  # fmt: skip


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--contend", choices=PROGRAMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        contend(options.contend, os.environ["BENCH_URL"])
        return 0
    print(f"{options.episodes:,} conversations of up to {options.turns} turns; {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        checks = verdicts(run_all(Path(folder), options.episodes, options.turns), options.turns)
    return judged(checks)


if __name__ == "__main__":
    sys.exit(main())
