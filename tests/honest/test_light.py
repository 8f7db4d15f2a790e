"""`import trajkit` and `trajkit --help` load next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time

HEAVY = {
    "chdb",
    "clickhouse_connect",
    "datasets",
    "duckdb",
    "gymnasium",
    "huggingface_hub",
    "minigrid",
    "numpy",
    "openai",
    "pandas",
    "polars",
    "pyarrow",
    "pydantic",
    "rich",
    "tensorzero",
    "tomlkit",
    "torch",
    "transformers",
    "yaml",
}
HELP_LIMIT_S = 0.3


def loaded_by(code: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after `code`."""
    ask = f"{code}\nimport json, sys\nsys.stdout.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_importing_trajkit_and_its_errors_loads_no_heavy_package():
    code = "import trajkit; trajkit.__version__; trajkit.TrajkitError"
    assert loaded_by(code).isdisjoint(HEAVY | {"click"})


def test_the_command_line_loads_only_click_for_its_help():
    code = "from trajkit.cli.main import run\nassert run(['--help']) == 0"
    loaded = loaded_by(code)
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_help_with_only_the_core_takes_at_most_300_ms_over_a_bare_interpreter(narrow):
    bare = best_of(7, narrow / "python", "-c", "pass")
    with_help = best_of(7, narrow / "trajkit", "--help")
    assert with_help - bare < HELP_LIMIT_S


def best_of(n: int, *command: object) -> float:
    """Seconds of the quickest of n runs: what the command itself costs, whatever else the machine does."""
    times = []
    for _ in range(n):
        started = time.perf_counter()
        subprocess.run([str(part) for part in command], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - started)
    return min(times)
