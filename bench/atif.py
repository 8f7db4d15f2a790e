"""Reading ATIF: documents to rows of a store, against orjson and Harbor's own models on the same bytes.

Run as `python bench/atif.py [N]` (documents, 400 by default); about a minute. Both read what is in memory,
check it and end with Python values: Harbor's with its models, trajkit with the rows that `import` stores.
Harbor's load from its wheel, in a process of their own; the two take turns, with the garbage collector set
as `trajkit` sets it. The limit is that trajkit computes no longer. Beside it stand the time to `Episode`
objects, which `import` makes only of unusual documents, and how fast a whole folder becomes a store.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.harbor_wheel import PRELUDE, unpacked_wheel
from trajkit.formats.reading.atif import read_atif
from trajkit.formats.reading.atif_rows import usual_rows
from trajkit.sources.files.importing import Wish, import_files
from trajkit.sources.files.texts import json_of

N_STEPS = 40
N_ROUNDS = 9

THEIRS = (
    PRELUDE
    + """
import gc, time, orjson
from pathlib import Path
gc.set_threshold(50_000, 20, 100)
texts = [path.read_bytes() for path in sorted(Path(sys.argv[2]).iterdir())]
for _ in range(int(sys.argv[3]) + 1):
    began = time.process_time()
    for text in texts:
        Trajectory.model_validate(orjson.loads(text))
    print(time.process_time() - began, flush=True)
    sys.stdin.readline()
"""
)


def document(number: int) -> dict[str, Any]:
    """A trajectory of an agent that searches, edits and runs, as Harbor's agents leave one."""
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "source": "system", "message": "You are a careful engineer. " * 20},
        {"step_id": 2, "source": "user", "message": f"Fix issue {number}. " * 10},
    ]
    for turn in range(N_STEPS):
        call_id = f"call_{number}_{turn}"
        steps.append(
            {
                "step_id": len(steps) + 1,
                "source": "agent",
                "timestamp": f"2026-11-21T12:{turn % 60:02}:00Z",
                "message": f"I look at file {turn}, since the test names it.",
                "reasoning_content": "The traceback points there. " * 5,
                "model_name": "small",
                "tool_calls": [
                    {
                        "tool_call_id": call_id,
                        "function_name": "bash",
                        "arguments": {"command": f"sed -n 1,80p src/module_{turn}.py", "timeout": 30},
                    }
                ],
                "observation": {
                    "results": [
                        {"source_call_id": call_id, "content": f"def f{turn}(x):\n    return x\n" * 40}
                    ]
                },
                "metrics": {
                    "prompt_tokens": 900 + turn,
                    "completion_tokens": 60,
                    "cached_tokens": 800,
                    "cost_usd": 0.001,
                },
            }
        )
    tool = {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {}},
    }
    return {
        "schema_version": "ATIF-v1.8",
        "trajectory_id": f"t{number}",
        "session_id": f"s{number}",
        "agent": {
            "name": "agent",
            "version": "1",
            "tool_definitions": [{"type": "function", "function": tool}] * 5,
        },
        "steps": steps,
    }


def ours(texts: list[bytes]) -> float:
    """Seconds of computing to read every document, as `import` does."""
    began = time.process_time()
    for text in texts:
        assert usual_rows(json_of(text)) is not None
    return time.process_time() - began


def to_objects(texts: list[bytes]) -> float:
    """Seconds of computing to make an `Episode` of every document."""
    began = time.process_time()
    for text in texts:
        read_atif(json_of(text))
    return time.process_time() - began


def main(n_documents: int) -> int:
    """Measure in turns, print the ratio, and say whether the limit was missed."""
    gc.set_threshold(50_000, 20, 100)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "documents"
        folder.mkdir()
        for number in range(n_documents):
            (folder / f"{number:06}.json").write_text(json.dumps(document(number)))
        paths = sorted(folder.iterdir())
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
        wheel = unpacked_wheel(Path(tempfile.gettempdir()) / "trajkit-bench-harbor")
        texts = [path.read_bytes() for path in paths]
        theirs_s, ours_s = _in_turns(wheel, folder, texts)
        ratio = statistics.median(theirs_s) / statistics.median(ours_s)
        print(f"{n_documents:,} documents of {N_STEPS} answers, {megabytes:.1f} MB")
        print(f"orjson + Harbor's models  {megabytes / statistics.median(theirs_s):7.1f} MB/s")
        print(f"trajkit, to rows          {megabytes / statistics.median(ours_s):7.1f} MB/s")
        print(f"trajkit, to objects       {megabytes / to_objects(texts):7.1f} MB/s")
        rounds = ", ".join(f"{one / two:.2f}" for one, two in zip(theirs_s, ours_s, strict=True))
        print(f"trajkit is {ratio:.2f} times as fast (limit 1.00; rounds {rounds})")
        began = time.perf_counter()
        imported, _ = import_files(folder, Path(name) / "store", Wish())
        wall_s = time.perf_counter() - began
        print(
            f"the folder to a store: {imported.n_documents / wall_s:,.0f} documents/s, "
            f"{imported.n_steps / wall_s:,.0f} steps/s"
        )
    return int(ratio < 1)


def _in_turns(wheel: Path, folder: Path, texts: list[bytes]) -> tuple[list[float], list[float]]:
    """Seconds of each round of both, one after the other; the first round of each warms up."""
    command = [sys.executable, "-c", THEIRS, str(wheel), str(folder), str(N_ROUNDS)]
    theirs_s, ours_s = [], []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for _ in range(N_ROUNDS + 1):
            theirs_s.append(float(process.stdout.readline()))
            ours_s.append(ours(texts))
            process.stdin.write("\n")
            process.stdin.flush()
    return theirs_s[1:], ours_s[1:]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400))
