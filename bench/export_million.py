"""Export of a million inferences: trajkit against the plain way, a raw copy and TensorZero's own listing.

    python bench/export_million.py [--inferences 1000000] [--rounds 1]

The database is a real ClickHouse with TensorZero's schema and synthetic rows of about 2.3 kB, 20 to an
episode. Every program runs in a process of its own, so that its peak memory is its own:

trajkit  `trajkit export --metric episode_return` into a store
part     the same with `--min 0.7`, which keeps 30 % of the episodes
copy     the Arrow streams of the same columns of the same tables into Parquet as they come
plain    `query_df`, `json.loads` of every JSON column of every row, joined by dictionaries into episodes. A
         million of them would not fit into the memory of most machines: it gets a quarter of the rows, and is
         compared by rows per second, and with four times its memory, which grows with the rows
listing  TensorZero's own `list_inferences`, a hundredth of the rows, compared by rows per second

trajkit also exports a hundredth and a tenth of the rows, for how time and memory grow. Exit 1 when a limit is
missed.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.export import copy, plain  # noqa: E402 -- found by the line above
from bench.measured import again, judged, machine, peak_mb  # noqa: E402
from bench.synthetic import STEPS_PER_EPISODE, fill  # noqa: E402

MIN_SPEED_UP = 5.0
MAX_MEMORY_SHARE = 0.1
MIN_LISTING_SPEED_UP = 40.0
MAX_COPY_RATIO = 3.5
MAX_PART_SHARE = 0.5
MAX_GROWTH = 1.25
"""Ten times the rows may take that much more than ten times the time."""
MAX_MEMORY_GROWTH, MAX_MEMORY_MORE_MB, MAX_MEMORY_MB = 1.3, 150.0, 1000.0

PROGRAMS = ("trajkit", "part", "copy", "plain", "listing")


class Run(NamedTuple):
    """What one program took."""

    seconds: float
    peak_mb: float
    rows: int

    @property
    def rows_per_s(self) -> float:
        """How quick it was."""
        return self.rows / self.seconds


# -- the programs, each in a process of its own --------------------------------------------------------------


def exported(url: str, folder: Path, *options: str) -> int:
    """`trajkit export`, as it is typed."""
    from trajkit.cli.main import run

    os.chdir(folder)
    os.environ["TENSORZERO_CLICKHOUSE_URL"] = url
    code = run(["export", "--metric", "episode_return", *options, "-o", "store"])
    if code:
        raise SystemExit(code)
    return int(json.loads(Path("store/manifest.json").read_text())["counts"]["n_steps"])


def listed(url: str, n_rows: int) -> tuple[int, float]:
    """TensorZero's client, as its documentation has it; opening the gateway is not counted."""
    from tensorzero import ListInferencesRequest, TensorZeroGateway

    from trajkit.stack.gateway_config import prepare_config
    from trajkit.stack.local import recipe_config

    with tempfile.TemporaryDirectory() as folder:
        config = prepare_config(recipe_config("babyai"), Path(folder) / "c", model_url="http://127.0.0.1:9")
        gateway: Any = TensorZeroGateway.build_embedded(config_file=str(config), clickhouse_url=url)
        with gateway:
            request = ListInferencesRequest(function_name="act", output_source="inference", limit=n_rows)
            started = time.perf_counter()
            answer = gateway.list_inferences(request=request)
            return len(answer.inferences), time.perf_counter() - started


def contend(name: str, url: str, n_rows: int) -> None:
    """Run one program in this process and print what it took; its imports come before the clock starts."""
    os.environ.setdefault("RUST_LOG", "off")
    if name in ("trajkit", "part"):
        from trajkit._core.process.memory import prefer_little_memory

        prefer_little_memory()
        import trajkit.commands.export
        import trajkit.sources.tensorzero.connect.database
        import trajkit.sources.tensorzero.export.export  # noqa: F401
    elif name == "listing":
        import tensorzero  # noqa: F401
    else:
        import pandas  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    import clickhouse_connect

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)

        def client() -> Any:
            return clickhouse_connect.get_client(dsn=url, autogenerate_session_id=False, compress=False)

        def timed(work: Callable[[], int]) -> tuple[int, float]:
            started = time.perf_counter()
            return work(), time.perf_counter() - started

        programs: dict[str, Callable[[], tuple[int, float]]] = {
            "trajkit": lambda: timed(lambda: exported(url, place)),
            "part": lambda: timed(lambda: exported(url, place, "--min", "0.7")),
            "copy": lambda: timed(lambda: copy(client(), place)),
            "plain": lambda: timed(lambda: plain(client(), place)),
            "listing": lambda: listed(url, n_rows),
        }
        rows, seconds = programs[name]()
        os.chdir("/")
    print(json.dumps({"seconds": seconds, "peak_mb": peak_mb(), "rows": rows}))


# -- measuring -----------------------------------------------------------------------------------------------


class Databases:
    """One server, with a database for each number of inferences."""

    def __init__(self, folder: Path) -> None:
        from trajkit.stack.clickhouse import ClickHouse
        from trajkit.stack.gateway_config import prepare_config
        from trajkit.stack.local import recipe_config

        self.server = ClickHouse.start(folder / "clickhouse")
        self._config = prepare_config(
            recipe_config("babyai"), folder / "config", model_url="http://127.0.0.1:9"
        )

    def url(self, n_inferences: int) -> str:
        """A database of that many, made when it is asked for the first time."""
        import clickhouse_connect
        from pydantic import SecretStr

        from trajkit.stack.gateway import create_schema

        name = f"tensorzero_{n_inferences}"
        url = self.server.url_for(self.server.user, database=name)
        if self.server.ask(f"EXISTS DATABASE {name}") != "1\n":
            asyncio.run(create_schema(self._config, SecretStr(url)))
            fill(clickhouse_connect.get_client(dsn=url), n_inferences=n_inferences)
            merging = f"SELECT count() FROM system.merges WHERE database = '{name}'"
            while self.server.ask(merging) != "0\n":  # it takes the processors of what is measured
                time.sleep(1)
        return url


def median_of(runs: list[Run]) -> Run:
    """The median of each number."""
    return Run(
        statistics.median(run.seconds for run in runs),
        statistics.median(run.peak_mb for run in runs),
        runs[0].rows,
    )


def run_all(folder: Path, n_inferences: int, rounds: int) -> dict[tuple[str, int], Run]:
    """Every program at its sizes, in turn; by program and number of inferences."""
    jobs = [
        ("trajkit", n_inferences // 100),
        ("trajkit", n_inferences // 10),
        ("plain", n_inferences // 4),
        ("copy", n_inferences),
        ("trajkit", n_inferences),
        ("part", n_inferences),
        ("listing", n_inferences),
    ]
    databases = Databases(folder)
    runs: dict[tuple[str, int], list[Run]] = {job: [] for job in jobs}
    try:
        for _ in range(rounds):
            for job in jobs:
                name, size = job
                asked = ("--contend", name, "--rows", n_inferences // 100)
                last = Run(**again(__file__, *asked, BENCH_URL=databases.url(size)))
                runs[job].append(last)
                print(
                    f"  {name:8} {size:9,}  {last.seconds:7.2f} s  {last.rows_per_s:9,.0f} rows/s "
                    f" peak {last.peak_mb:7,.0f} MB  {last.rows:,} rows",
                    flush=True,
                )
    finally:
        databases.server.kill()
    return {job: median_of(some) for job, some in runs.items()}


def verdicts(runs: dict[tuple[str, int], Run], n_inferences: int) -> list[tuple[str, bool]]:
    """What was found, and whether it is within its limit."""
    whole, tenth, hundredth = (runs["trajkit", n_inferences // part] for part in (1, 10, 100))
    listing, naive = runs["listing", n_inferences], runs["plain", n_inferences // 4]
    speed_up = whole.rows_per_s / naive.rows_per_s
    share = whole.peak_mb / (4 * naive.peak_mb)
    against_listing = whole.rows_per_s / listing.rows_per_s
    copies = whole.seconds / runs["copy", n_inferences].seconds
    part = runs["part", n_inferences].seconds / whole.seconds
    growth = whole.seconds / tenth.seconds / 10
    early = tenth.seconds / hundredth.seconds / 10
    allowed_mb = min(
        max(MAX_MEMORY_GROWTH * tenth.peak_mb, tenth.peak_mb + MAX_MEMORY_MORE_MB), MAX_MEMORY_MB
    )
    return [
        (
            f"{speed_up:.2f} times as quick as the plain way (at least {MIN_SPEED_UP:g})",
            speed_up >= MIN_SPEED_UP,
        ),
        (
            f"{share:.3f} of four times the peak memory that the plain way takes for a quarter of the rows"
            f" (at most {MAX_MEMORY_SHARE:g})",
            share <= MAX_MEMORY_SHARE,
        ),
        (
            f"{against_listing:.1f} times as quick as list_inferences (at least {MIN_LISTING_SPEED_UP:g})",
            against_listing >= MIN_LISTING_SPEED_UP,
        ),
        (f"{copies:.2f} times a raw copy (at most {MAX_COPY_RATIO:g})", copies <= MAX_COPY_RATIO),
        (
            f"{part:.2f} of the whole time for {runs['part', n_inferences].rows / whole.rows:.0%} of the rows"
            f" (at most {MAX_PART_SHARE:g})",
            part <= MAX_PART_SHARE,
        ),
        (
            f"{growth:.2f} times the time per row of a tenth (at most {MAX_GROWTH:g}), which took {early:.2f}"
            " times that of a hundredth (at most the same)",
            growth <= MAX_GROWTH and early <= MAX_GROWTH,
        ),
        (
            f"peak {whole.peak_mb:,.0f} MB, and {tenth.peak_mb:,.0f} MB for a tenth"
            f" (at most {allowed_mb:,.0f})",
            whole.peak_mb <= allowed_mb,
        ),
    ]


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inferences", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--contend", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=10_000, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        contend(options.contend, os.environ["BENCH_URL"], options.rows)
        return 0
    n = options.inferences - options.inferences % (100 * STEPS_PER_EPISODE)
    print(f"export of {n:,} inferences, {options.rounds} rounds, medians; {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        checks = verdicts(run_all(Path(folder), n, options.rounds), n)
    return judged(checks)


if __name__ == "__main__":
    sys.exit(main())
