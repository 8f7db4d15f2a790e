"""`trajkit` in a process of its own that imports nothing: it is forked from one that has."""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

_BIN = Path(sys.executable).parent
HEAVY = ("duckdb", "pyarrow.dataset", "pyarrow.parquet", "transformers.modeling_utils", "peft")
"""What takes long to import, beside the commands."""


def trajkit(
    arguments: Sequence[str], folder: Path, environment: dict[str, str], *, is_together: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder; `is_together` puts both of its streams into `stdout`."""
    if any(name.startswith("HF_") for name in environment):  # they are read when the library is imported
        return subprocess.run(
            [_BIN / "trajkit", *arguments],
            cwd=folder,
            env=environment,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if is_together else subprocess.PIPE,
        )
    with tempfile.TemporaryDirectory() as goal:
        out = Path(goal, "out")
        err = out if is_together else Path(goal, "err")
        for each in (out, err):
            each.touch()
        code = call(arguments, folder, environment, ("/dev/null", str(out), str(err)))
        said = [each.read_text(encoding="utf-8", errors="replace") for each in (out, err)]
    return subprocess.CompletedProcess(arguments, code, said[0], "" if is_together else said[1])


def call(
    arguments: Sequence[str], folder: Path, environment: dict[str, str], streams: tuple[str, str, str]
) -> int:
    """Run the command with files as its streams, and give its exit code."""
    process = _server()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps([arguments, str(folder), environment, streams])}\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@functools.cache
def _server() -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    atexit.register(process.terminate)
    return process


def _fork() -> None:
    """Fork for each line of stdin; come back only in a process that is to run a command."""
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            arguments, folder, environment, streams = json.loads(line)
            os.setsid()  # the first terminal that is opened is that of the process
            for number, path in enumerate(streams):
                os.dup2(os.open(path, os.O_RDWR | os.O_APPEND), number)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = ["trajkit", *arguments]
            return
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
        sys.stdout.flush()
    os._exit(0)


def _serve() -> None:
    from trajkit._core.memory import prefer_little_memory
    from trajkit.cli.main import main
    from trajkit.commands.catalog import COMMANDS, load

    prefer_little_memory()
    for name in COMMANDS:
        load(name)
    for name in HEAVY:
        importlib.import_module(name)
    _fork()
    code = 1
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        if (kind := sys.exc_info()[0]) is not None:
            sys.excepthook(kind, *sys.exc_info()[1:])
        # what Python does at the end, but for taking apart all that was imported
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(_BIN)
    _serve()
