"""Start and stop the local stack of a working folder as a whole, and keep its data."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.output.console import line
from trajkit._core.output.result import Result
from trajkit._core.process.loop import run_to_end
from trajkit._core.samples import recipe_folder
from trajkit._core.settings import STATE_FOLDER
from trajkit.errors import ConfigError, StackError
from trajkit.stack import process as processes
from trajkit.stack.clickhouse import ClickHouse, delete_data, is_data_folder
from trajkit.stack.gateway import create_schema
from trajkit.stack.gateway_config import prepare_config, read_config
from trajkit.stack.process import Process
from trajkit.stack.state import LocalStack, ModelServer, read_state, state_path, write_state

COUNTED_TABLES = ("JsonInference", "ChatInference", "FloatMetricFeedback", "BooleanMetricFeedback")
"""Tables whose rows `status` counts."""

_LOADING_S = 600.0
"""Large models take minutes to load; a server that cannot load its model ends at once."""
_URL = re.compile(r"http://127\.0\.0\.1:\d+")


class Serves(NamedTuple):
    """Local models that replace the stand-in."""

    arguments: tuple[str, ...]
    """Arguments of `trajkit serve`, which runs in another folder, so paths are absolute."""
    names: tuple[str, ...]
    """Names of the models, the stand-in's replacement first."""


class Stopped(NamedTuple):
    """A service to stop."""

    service: str
    process: Process
    was_running: bool


@dataclass(frozen=True)
class Down(Result):
    """The result of `stop_stack`."""

    services: list[Stopped]
    """Each service that had been started, running or not."""
    deleted: Path | None = None
    """Folder of the deleted database; None when none was deleted."""

    def to_json(self) -> dict[str, Any]:
        """Return the services, and the deleted folder."""
        services = [
            {"service": service, "pid": process.pid, "was_running": was_running}
            for service, process, was_running in self.services
        ]
        return {"services": services, "deleted": None if self.deleted is None else str(self.deleted)}

    def __str__(self) -> str:
        lines = [
            f"{service} {'stopped' if was_running else 'was not running'} (process {process.pid})"
            for service, process, was_running in self.services
        ]
        if self.deleted is not None:
            lines.append(f"deleted the database in {self.deleted}")
        return "\n".join(map(line, lines))


def recipe_config(name: str = "babyai") -> Path:
    """Return the `tensorzero.toml` of a recipe that is part of trajkit.

    Raises:
        ConfigError: There is no such recipe.
    """
    if (path := recipe_folder() / name / "tensorzero.toml").is_file():
        return path
    raise ConfigError(f"there is no recipe {name!r} in this installation", hint="pass --config")


def start_stack(
    config: Path,
    *,
    data_folder: Path | None = None,
    mistakes: float = 0.2,
    model: str | None = None,
    serves: Serves | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> LocalStack:
    """Start the services that are not running. After a failure, the services that it started are stopped.

    Args:
        config: The gateway's `tensorzero.toml`; a copy of it is used.
        data_folder: Data folder of the database; None for `.trajkit/stack/clickhouse`.
        mistakes: Share of the model server's answers that are wrong on purpose, from 0 to 1.
        model: Model that replaces the stand-in, such as `openai::gpt-4.1-mini`.
        serves: Local models that replace the stand-in; None for the stand-in itself.
        folder: The working folder; None for the current one.
        say: Called with a message at every step.

    Raises:
        StackError: A service did not start, or the stack of this folder runs on other data.
        ConfigError: The configuration is invalid.
        ServiceError: The gateway could not create its tables.
    """
    home = ((folder or Path()) / STATE_FOLDER / "stack").resolve()
    home.mkdir(parents=True, exist_ok=True)
    before = read_state(folder)
    uses_stand_in = read_config(config).needs_model_server
    if serves is not None and not uses_stand_in:
        raise ConfigError(
            f"no variant in {config} uses the stand-in model, so none would use {serves.names[0]}",
            hint="`trajkit serve` serves it separately, and `trajkit register` adds it to a configuration",
        )
    needs_model_server = uses_stand_in and model is None
    with contextlib.ExitStack() as undo:
        database = _database(before, data_folder, home, undo, say)
        server = _model_server(before, mistakes, serves, home, undo, say) if needs_model_server else None
        config_file = _configure(config, home, database, server, model, say)
        state = LocalStack.model_validate(
            {
                "clickhouse_url": database.url,
                "clickhouse": database.process,
                "data_folder": database.folder,
                "config_file": config_file,
                "config_source": config.resolve(),
                "model": model,
                "model_server": server,
            }
        )
        write_state(state, folder)
        undo.pop_all()
    if before and before.model_server and before.model_server != server:
        processes.end(before.model_server.process)
    return state


def _database(
    before: LocalStack | None,
    wanted: Path | None,
    home: Path,
    undo: contextlib.ExitStack,
    say: Callable[[str], None],
) -> ClickHouse:
    if before is not None and before.clickhouse.is_running:
        if wanted is not None and wanted.resolve() != before.data_folder:
            raise StackError(
                f"the stack of this folder runs on {before.data_folder}", hint="`trajkit down` first"
            )
        wanted = before.data_folder
    data_folder = (wanted or home / "clickhouse").resolve()
    if (running := ClickHouse.find(data_folder)) is not None:
        return running
    say(f"starting ClickHouse on {data_folder}")
    database = ClickHouse.start(data_folder)
    undo.callback(database.stop)
    return database


def _model_server(
    before: LocalStack | None,
    mistakes: float,
    serves: Serves | None,
    home: Path,
    undo: contextlib.ExitStack,
    say: Callable[[str], None],
) -> ModelServer:
    old = before.model_server if before else None
    if old is not None and old.process.is_running and _is_same(old, mistakes, serves):
        return old
    if serves is None:
        say(f"starting the model server (a rule player, not a language model; {mistakes:.0%} mistakes)")
        module, words, limit_s = "trajkit.stack.model_server", ["--mistakes", str(mistakes)], 30.0
    else:
        say(f"starting the model server with {', '.join(serves.names)}")
        module, words, limit_s = "trajkit", ["serve", *serves.arguments], _LOADING_S
    log = home / "model_server.log"
    process, url = processes.start_module(
        module,
        [*words, "--port", "0"],
        log=log,
        is_ready=lambda _: _url_in(log),
        what="the model server",
        timeout_s=limit_s,
    )
    undo.callback(processes.end, process)
    if serves is None:
        return ModelServer(url=url, mistakes=mistakes, process=process)
    return ModelServer(
        url=url, mistakes=0.0, models=serves.names, arguments=serves.arguments, process=process
    )


def _is_same(server: ModelServer, mistakes: float, serves: Serves | None) -> bool:
    """Check whether a running server is the one that is requested."""
    if serves is None:
        return not server.models and server.mistakes == mistakes
    return (server.models, server.arguments) == (serves.names, serves.arguments)


def _url_in(log: Path) -> str | None:
    text = log.read_text(encoding="utf-8", errors="replace")
    found = _URL.search(text.rpartition("\n")[0])  # whole lines only: a truncated port is a different port
    return found.group() if found else None


def _configure(
    source: Path,
    home: Path,
    database: ClickHouse,
    server: ModelServer | None,
    model: str | None,
    say: Callable[[str], None],
) -> Path:
    """Prepare the configuration beside the current one, try it, and then replace the current one."""
    fresh, goal = home / "config.new", home / "config"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        prepared = prepare_config(
            source,
            fresh,
            model_url=server.url if server else None,
            model=model,
            served=server.models if server else (),
        )
        say("opening the gateway once, so that TensorZero's tables exist")
        run_to_end(create_schema(prepared, database.secret_url))
        shutil.rmtree(goal, ignore_errors=True)
        fresh.replace(goal)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return goal / source.name


def stop_stack(*, folder: Path | None = None, with_data: bool = False) -> Down:
    """Stop the processes that `start_stack` started, by process id, and remove the state file.

    Args:
        folder: The working folder; None for the current one.
        with_data: Also delete the database.

    Raises:
        StackError: The state file cannot be read, or an unrecorded database runs on the data.
    """
    state = read_state(folder)
    home = ((folder or Path()) / STATE_FOLDER / "stack").resolve()
    stopped = []
    if state is not None:
        services = [("ClickHouse", state.clickhouse)]
        if state.model_server:
            services.append(("model server", state.model_server.process))
        stopped = [Stopped(name, process, processes.end(process)) for name, process in services]
        state_path(folder).unlink(missing_ok=True)
        shutil.rmtree(home / "config", ignore_errors=True)
    data_folder = state.data_folder if state else home / "clickhouse"
    if not with_data or not is_data_folder(data_folder):
        return Down(stopped)
    delete_data(data_folder)
    return Down(stopped, data_folder)


def row_counts(state: LocalStack) -> dict[str, int]:
    """Count the rows in the main tables of the running database.

    Raises:
        ServiceError: The database does not answer, or does not have TensorZero's tables.
        StackError: The database does not run.
    """
    database = ClickHouse.find(state.data_folder)
    if database is None:
        raise StackError(f"no ClickHouse runs on {state.data_folder}")
    selects = [f"SELECT '{table}', count() FROM tensorzero.{table}" for table in COUNTED_TABLES]
    rows = dict(line.split("\t") for line in database.ask(" UNION ALL ".join(selects)).splitlines())
    return {table: int(rows[table]) for table in COUNTED_TABLES}
