"""`trajkit up`, `status` and `down`: the local services of the working folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from trajkit._core.console import Cell, count, result, result_json, table, talk
from trajkit.cli.option import runs_option

if TYPE_CHECKING:
    from trajkit.stack.process import Process
    from trajkit.stack.state import LocalStack

_STAND_IN = "rule player, not a language model"


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The gateway's tensorzero.toml. Default: `config` in trajkit.toml, else the recipe for BabyAI.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of the database. Default: .trajkit/stack/clickhouse.",
)
@click.option(
    "--mistakes",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    help="Share of the stand-in's answers that are wrong on purpose.",
)
@click.option(
    "--model",
    help="A real model instead of the stand-in, such as openai::gpt-4.1-mini; its key must be set.",
)
@click.option(
    "--serve",
    "served",
    multiple=True,
    metavar="MODEL[=NAME]",
    help="A model of this machine instead: a job, a folder, an id, sample:tiny-base. Several times: by NAME.",
)
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def up(
    config: Path | None,
    data: Path | None,
    mistakes: float,
    model: str | None,
    served: tuple[str, ...],
    runs_folder: Path,
    as_json: bool,
) -> None:
    """Start the local services: ClickHouse with TensorZero's tables, and a stand-in model.

    The stand-in is a rule player, not a language model: it needs no key and no network. --model puts a real
    model in its place, and --serve one of this machine, behind `trajkit serve`: variants of the stand-in ask
    the first, and models at the stand-in's address that have the NAME of another ask that.

    There is no gateway process: the gateway of TensorZero 2026.6.0 for Python lives inside the process that
    uses it and serves no TensorZero HTTP API, so every command that plays opens its own on this database. To
    use a gateway that runs elsewhere, set TENSORZERO_GATEWAY_URL; for a database elsewhere, set
    TENSORZERO_CLICKHOUSE_URL. Neither needs `trajkit up`.

    The ports are on 127.0.0.1 only. What runs, and where, is kept in .trajkit/stack.json. A second `up`
    starts what has died, on the same data, and reads the configuration again.
    """
    from trajkit.commands.services import start
    from trajkit.stack.state import local_stack

    before = local_stack()
    state = start(config, data, mistakes, model, served, runs_folder, say=talk)
    if before is not None and before.processes == state.processes:
        talk("it was up already; the configuration was read again")
    if as_json:
        result_json(_described(state))
        return
    _print_services(state)
    _say_what_is_next(state)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show the local services: where they are, since when, and the rows in the main tables.

    Exit code 1 when the database does not run.
    """
    from trajkit.stack.local import row_counts
    from trajkit.stack.state import read_state

    state = read_state()
    is_up = state is not None and state.clickhouse.is_running
    rows = row_counts(state) if state is not None and is_up else {}
    if as_json:
        result_json({"is_up": is_up, **(_described(state) if state else {}), "rows": rows})
    elif state is None:
        talk("nothing is up in this folder; start with `trajkit up`")
    else:
        _print_services(state)
        if rows:
            result()
            table(
                [Cell("table"), Cell("rows", is_number=True)], [(name, count(n)) for name, n in rows.items()]
            )
        if not state.is_running:
            talk("`trajkit up` starts what does not run, on the same data")
    if not is_up:
        context.exit(1)


@click.command()
@click.option("--delete-data", is_flag=True, help="Delete the database too. There is no way back.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def down(delete_data: bool, as_json: bool) -> None:
    """Stop the local services. Their data stay, unless --delete-data.

    A process is signalled only when its id and its start are those that `up` wrote down.
    """
    from trajkit.stack.local import stop_stack

    stopped, deleted = stop_stack(with_data=delete_data)
    if as_json:
        services = [
            {"service": s.service, "pid": s.process.pid, "was_running": s.was_running} for s in stopped
        ]
        result_json({"services": services, "deleted": str(deleted) if deleted else None})
        return
    for service, process, was_running in stopped:
        result(f"{service} {'stopped' if was_running else 'was not running'} (process {process.pid})")
    if not stopped:
        talk("nothing was up in this folder")
    if deleted:
        result(f"deleted the database in {deleted}")


def _print_services(state: LocalStack) -> None:
    rows = [("ClickHouse", *_standing(state.clickhouse), _shown_url(state))]
    if server := state.model_server:
        is_stand_in = f"{_STAND_IN}; {server.mistakes:.0%} mistakes"
        about = f"{server.url}  {', '.join(server.models) or is_stand_in}"
        rows.append(("model server", *_standing(server.process), about))
    else:
        rows.append(("model", "elsewhere", "", "", state.model or "as the configuration says"))
    rows.append(("gateway", "in each command", "", "", str(state.config_file)))
    rows.append(("data", "", "", "", str(state.data_folder)))
    table(
        [Cell("service"), Cell("state"), Cell("process", is_number=True), Cell("since"), Cell("where")], rows
    )


def _standing(process: Process) -> tuple[str, str, str]:
    state = "running" if process.is_running else "not running"
    return state, str(process.pid), f"{process.started_at:%Y-%m-%d %H:%M:%S} UTC"


def _shown_url(state: LocalStack) -> str:
    parts = urlsplit(state.clickhouse_url.get_secret_value())
    return f"{parts.scheme}://{parts.username}:***@{parts.hostname}:{parts.port}{parts.path}"


def _described(state: LocalStack) -> dict[str, Any]:
    server = state.model_server
    return {
        "clickhouse": {"url": _shown_url(state), **_process(state.clickhouse)},
        "model_server": server
        and {
            "url": server.url,
            "is": "trajkit serve" if server.models else _STAND_IN,
            "models": list(server.models),
            "mistakes": server.mistakes,
            **_process(server.process),
        },
        "model": state.model,
        "config_file": str(state.config_file),
        "config_source": str(state.config_source),
        "data_folder": str(state.data_folder),
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "started_at": process.started_at.isoformat(),
        "is_running": process.is_running,
    }


def _say_what_is_next(state: LocalStack) -> None:
    from trajkit.stack.local import recipe_config

    for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
        if os.environ.get(name):
            talk(f"note: {name} is set, and other commands use what it names instead of this stack")
    talk("next:")
    if state.config_source == recipe_config().resolve():
        talk("  trajkit rollout babyai --task goto --variant history_and_reasoning --episodes 20")
        talk("  trajkit export --metric episode_return --min 0.7")
    talk("  trajkit status")
    talk("  trajkit down")
