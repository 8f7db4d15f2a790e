"""Play episodes in a new process, to check that seeds are reproducible and that nothing is printed to stdout.

The process runs this module with two files: the request and the answer. Its stdout is left to the
environment, so that output of C code is noticed as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trajkit.environments.base import Result, Start
from trajkit.environments.checks.trace import Trace, play
from trajkit.environments.quiet import overheard
from trajkit.environments.watch import TooLong
from trajkit.errors import RolloutError, TrajkitError


class Asked(NamedTuple):
    """Which episodes to play."""

    env_id: str
    settings: Mapping[str, str]
    task: str
    seeds: Sequence[int]
    n_steps: int


class Elsewhere(NamedTuple):
    """The result from the other process."""

    traces: tuple[Trace, ...]
    printed: str
    """Output of the environment that trajkit sent to stderr."""
    escaped: str
    """Output that reached stdout nevertheless."""


def elsewhere(asked: Asked, *, limit_s: float) -> Elsewhere:
    """Play the episodes in a new process, which has another seed for Python's hashes.

    Raises:
        RolloutError: The episodes failed in the other process.
        TooLong: They took longer than `limit_s` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="trajkit-") as folder:
        question, answer = Path(folder) / "asked.json", Path(folder) / "answer.json"
        question.write_text(
            json.dumps(asked._asdict() | {"settings": dict(asked.settings)}), encoding="utf-8"
        )
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
            "PYTHONHASHSEED": "random",
        }
        command = [sys.executable, "-m", "trajkit.environments.checks.fresh", str(question), str(answer)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, timeout=limit_s, stdin=subprocess.DEVNULL
            )
        except (subprocess.TimeoutExpired, TooLong):
            raise TooLong from None  # raised again: the environment is slow, not our waiting
        if done.returncode != 0 or not answer.exists():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise RolloutError(f"a fresh process ended with code {done.returncode}: {' '.join(last)}")
        told = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in told:
        raise RolloutError(f"in a fresh process: {told['error']}", hint=told["hint"])
    return Elsewhere(
        tuple(_trace(fields) for fields in told["traces"]),
        told["printed"],
        done.stdout.decode(errors="replace"),
    )


def _trace(fields: list[object]) -> Trace:
    seed, start, results, scores, legal = fields
    return Trace(
        seed,  # type: ignore[arg-type]
        Start(*start),  # type: ignore[misc]
        tuple(Result(*result) for result in results),  # type: ignore[attr-defined]
        scores,  # type: ignore[arg-type]
        tuple(tuple(actions) for actions in legal),  # type: ignore[attr-defined]
    )


def answer_to(asked: Asked) -> dict[str, object]:
    """Play the request. Return traces and printed lines, or the error."""
    from trajkit.environments import make

    with overheard() as said:
        try:
            world = make(asked.env_id, asked.task, asked.settings)
            traces = [play(world, seed, n_steps=asked.n_steps) for seed in asked.seeds]
        except TrajkitError as error:
            return {"error": error.message, "hint": error.hint}
        world.close()
    return {"traces": traces, "printed": "".join(said)}


if __name__ == "__main__":
    question, goal = map(Path, sys.argv[1:])
    answer = answer_to(Asked(**json.loads(question.read_text(encoding="utf-8"))))
    goal.write_text(json.dumps(answer), encoding="utf-8")
