"""`trajkit` and its services in processes that import nothing: they are forked from one that has."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_BIN = Path(sys.executable).parent
_SHARED = "TRAJKIT_TESTS_FORK_FROM"
HEAVY = (
    *("duckdb", "pyarrow.dataset", "pyarrow.parquet", "transformers.trainer", "peft"),
    *("openai", "starlette.applications", "starlette.routing", "uvicorn"),
)
"""What takes long to import, beside the commands."""
MODULES = ("trajkit", "trajkit.stack.model_server", "trajkit.training.local.running.worker")
"""What is forked of what a command starts and leaves: the model servers and the trainings."""


def spool_connection(*, spill: Path) -> Any:
    """A connection to the one database in which stores are written in a process: opening one takes 20 ms."""
    cursor = _spool_database(os.getpid()).cursor()
    cursor.execute("SET memory_limit = '4GB'")  # `StoreWriter.finish` lowers that of the whole database
    return cursor


@functools.cache
def _spool_database(_process: int) -> Any:
    from trajkit.store.engine import connect

    return connect()


def trajkit(
    arguments: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    *,
    is_together: bool = False,
    module: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command, or a module, in a folder; `is_together` puts both of its streams into `stdout`."""
    with tempfile.TemporaryDirectory() as goal:
        out = Path(goal, "out")
        err = out if is_together else Path(goal, "err")
        for each in (out, err):
            each.touch()
        code = Forked(module, arguments, folder, environment, ("/dev/null", str(out), str(err))).wait()
        said = [each.read_text(encoding="utf-8", errors="replace") for each in (out, err)]
    return subprocess.CompletedProcess(arguments, code, said[0], "" if is_together else said[1])


class Forked:
    """A process that was forked, with what is asked of a `subprocess.Popen`.

    Args:
        module: The module that it runs; None for the command `trajkit`, `-c` for a program's text.
        arguments: Its arguments.
        folder: Its working folder.
        environment: All its variables.
        streams: The files that are its streams; they exist.
    """

    def __init__(
        self,
        module: str | None,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[str, str, str],
    ) -> None:
        self.returncode: int | None = None
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(_address())
            request = (module, arguments, str(folder), dict(environment), streams)
            connection.sendall(f"{json.dumps(request)}\n".encode())
            self._answers = connection.makefile("r")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        is_over = self.returncode is not None or select.select([self._answers], [], [], 0)[0]
        return self.wait() if is_over else None

    def wait(self) -> int:
        """Wait for its end, and give its exit code."""
        if self.returncode is None:
            with self._answers:
                self.returncode = int(self._answers.readline())
        return self.returncode

    def __del__(self) -> None:
        """Forget it: services outlive who starts them."""
        self._answers.close()


def popen(command: list[str], *, cwd: Path, env: dict[str, str], stdout: Any, **options: Any) -> Any:
    """Start `python -m MODULE` as `subprocess.Popen` does, forked when it is one of MODULES."""
    _, _, module, *arguments = command
    if module not in MODULES:
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, **options)
    return Forked(module, arguments, cwd, env, ("/dev/null", stdout.name, stdout.name))


def run(command: Sequence[str], *, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does, `python -c PROGRAM` forked."""
    if list(command[:2]) != [sys.executable, "-c"]:
        return subprocess.run(command, env=env, **options)
    return trajkit(command[2:], Path.cwd(), env, module="-c")


def with_tables() -> Any:
    """The class `ClickHouse` with TensorZero's tables in each new folder: copied; to make them takes 5 s."""
    from trajkit.stack import clickhouse

    class WithTables(clickhouse.ClickHouse):
        @classmethod
        def start(cls, folder: Path, **options: Any) -> Any:
            if not folder.exists():
                shutil.copytree(_tables(Path(_address()).parent), folder, symlinks=True)
            return super().start(folder, **options)

    return WithTables


def _tables(home: Path) -> Path:
    """A data folder with the tables, which all processes of a run of the tests share."""
    from trajkit.stack import clickhouse, gateway, gateway_config, local

    made, new = home / "tables", home / "new"
    with (home / "tables.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            source = local.recipe_config()
            config = gateway_config.prepare_config(source, home / "config", model_url="http://none")
            database = clickhouse.ClickHouse.start(new)
            try:
                asyncio.run(gateway.create_schema(config, database.secret_url))
            finally:
                database.stop()
            mark = new / clickhouse.MARK
            mark.write_text(json.dumps(json.loads(mark.read_text()) | {"port": 0, "process": None}))
            new.rename(made)
    return made


def share() -> None:
    """Let the processes that this one starts fork from the same process."""
    os.environ[_SHARED] = _address()


@functools.cache
def _address() -> str:
    """The socket of the process to fork from, which ends with the one that started it."""
    if shared := os.environ.get(_SHARED):
        return shared
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    address = f"{folder.name}/warm"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, __file__, address, str(listening.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            pass_fds=[listening.fileno()],
        )
    atexit.register(process.terminate)
    return address


def _fork(listening: socket.socket) -> tuple[str | None, Sequence[str]]:
    """Fork for each request, and say the process id and in the end the exit code; only a fork returns."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while sys.stdin not in (ready := select.select([listening, sys.stdin, *running], [], [])[0]):
        for each in ready:
            if each is listening:
                connection, _ = listening.accept()
                with connection.makefile() as file:
                    request = json.loads(file.readline())
                if (process := os.fork()) == 0:
                    listening.close()
                    return _begin(*request)
                running[os.pidfd_open(process)] = process, connection
                _say(process, connection)
            else:
                process, connection = running.pop(each)
                os.close(each)
                with connection:
                    _say(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), connection)
    os._exit(0)


def _say(number: int, connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):  # who asked is gone
        connection.sendall(f"{number}\n".encode())


def _begin(
    module: str | None, arguments: Sequence[str], folder: str, environment: dict[str, str], streams: list[str]
) -> tuple[str | None, Sequence[str]]:
    """Make this process what was asked for."""
    os.setsid()  # the first terminal that is opened is that of the process
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_APPEND), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(importlib.import_module("huggingface_hub.constants"))  # it reads them at its import
    if module is not None:
        sys.path[0] = folder
        sys.modules.pop(module, None)
    return module, arguments


def _import(address: str) -> None:
    """Import what the forks need."""
    from trajkit._core.process.memory import prefer_little_memory
    from trajkit.commands.catalog import COMMANDS, load
    from trajkit.registry import check
    from trajkit.stack import local, process

    prefer_little_memory()
    for name in COMMANDS:
        load(name)
    for name in (*HEAVY, *MODULES):
        importlib.import_module(name)
    globals()["_address"] = lambda: address
    process.subprocess = check.subprocess = forking()  # type: ignore[attr-defined]
    local.ClickHouse = with_tables()  # type: ignore[misc]
    gc.collect()
    gc.freeze()  # what is collected in a fork would be copied first


def _serve(address: str, descriptor: str) -> NoReturn:
    listening = socket.socket(fileno=int(descriptor))
    if sys.stdin in select.select([listening, sys.stdin], [], [])[0]:
        sys.exit()  # no test forked anything
    _import(address)
    module, arguments = _fork(listening)

    from trajkit.cli.main import main

    sys.argv = [module or "trajkit", *arguments]
    code = 1
    try:
        if module in (None, "trajkit"):
            main()
        elif module == "-c":
            sys.argv = [module, *arguments[1:]]
            exec(arguments[0], {"__name__": "__main__"})
        else:
            runpy.run_module(module, run_name="__main__")
        code = 0
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


def forking() -> Any:
    """The module `subprocess` with a `Popen` and a `run` that fork."""
    from types import SimpleNamespace

    return SimpleNamespace(**{**vars(subprocess), "Popen": popen, "run": run})


if __name__ == "__main__":
    sys.path[0] = str(_BIN)
    _serve(*sys.argv[1:])
