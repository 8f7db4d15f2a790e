"""Plays a session in child processes that are killed at chosen points; for test_resume.py.

`python killed.py FOLDER SEED N`: each child plays the same session in FOLDER with a scripted policy. N are
killed by SIGKILL: at a random byte of the journal (often in the middle of a line), or after a random time.
The last one is left alone. What each came to is printed as a line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

from trajkit.rollouts.options import Options
from trajkit.rollouts.records import lines
from trajkit.rollouts.session import prepare, run

OPTIONS = Options.model_validate(
    {
        "env_id": "babyai",
        "tasks": ("goto", "open"),
        "policy": "noisy-expert",
        "seeds": "0:24",
        "concurrency": 4,
        "store": "store",
    }
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """A file of which so many bytes are written before the process is killed."""

    def __init__(self, file, rest: list[int]) -> None:
        self.file, self.rest = file, rest

    def write(self, data: bytes) -> None:
        self.file.write(data[: self.rest[0]])
        self.rest[0] -= len(data)
        if self.rest[0] < 0:
            self.file.flush()
            die()

    def __getattr__(self, name: str):
        return getattr(self.file, name)


def play(n_bytes: int | None) -> None:
    if n_bytes is not None:
        opened, rest = lines.LineFile._opened, [n_bytes]
        lines.LineFile._opened = lambda self: Dying(opened(self), rest)
    run(prepare(OPTIONS), on_played=lambda played: None)


def child(n_bytes: int | None, seconds: float | None) -> int:
    """How a child ended: the signal or the exit code of it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            play(n_bytes)
        except BaseException as error:  # noqa: BLE001 -- a child must not go on as its parent
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: str, seed: int, n_kills: int) -> None:
    os.chdir(folder)
    prepare(OPTIONS)  # imports what a child needs, once
    chance = random.Random(seed)
    for number in range(n_kills):
        if number % 4 == 3:
            n_bytes, seconds = None, chance.uniform(0, 0.04)
        else:
            n_bytes, seconds = chance.randrange(25_000), None
        ended = child(n_bytes, seconds)
        sys.stdout.write(json.dumps({"bytes": n_bytes, "seconds": seconds, "ended": ended}) + "\n")
    sys.stdout.write(json.dumps({"ended": child(None, None)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
