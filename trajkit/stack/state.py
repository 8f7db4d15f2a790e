"""Read and write the state file of a working folder's stack, by which other commands find it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationError

from trajkit._core.files import write_json
from trajkit._core.output.console import Cell, result_text, table_text, talk
from trajkit._core.output.result import Result
from trajkit._core.settings import STATE_FOLDER
from trajkit.errors import StackError
from trajkit.schema.base import Model
from trajkit.stack.process import Process

STATE_FILE = "stack.json"
_STAND_IN = "rule player, not a language model"


class ModelServer(Model):
    """The model server of the stack: the stand-in, or local models."""

    url: str
    """Address of the server."""
    mistakes: float
    """Share of its answers that are wrong on purpose."""
    models: tuple[str, ...] = ()
    """Names of its models, the stand-in's replacement first; empty for the stand-in."""
    arguments: tuple[str, ...] = ()
    """Arguments of `trajkit serve`; empty for the stand-in."""
    process: Process
    """Process of the server."""


class LocalStack(Model, Result):
    """The services that `trajkit up` started, and their addresses."""

    clickhouse_url: SecretStr
    """URL of the database for TensorZero, with user and password."""
    clickhouse: Process
    """Process of the database."""
    data_folder: Path
    """Data folder of the database."""
    config_file: Path
    """Configuration of the gateway, with the addresses of this stack."""
    config_source: Path
    """The configuration that it was copied from."""
    model: str | None
    """Model that replaces the stand-in; None when the configuration's own models are used."""
    model_server: ModelServer | None
    """The stand-in, or its replacement; None when no variant uses it."""

    @property
    def model_url(self) -> str | None:
        """Address of the model server; None when no variant uses it."""
        return self.model_server.url if self.model_server else None

    @property
    def served(self) -> tuple[str, ...]:
        """Names of the models that replace the stand-in; empty for the stand-in."""
        return self.model_server.models if self.model_server else ()

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes, running or not."""
        return (self.clickhouse, *([self.model_server.process] if self.model_server else []))

    @property
    def is_running(self) -> bool:
        """Whether every service is alive."""
        return all(process.is_running for process in self.processes)

    @property
    def shown_url(self) -> str:
        """The address of the database without its password."""
        parts = urlsplit(self.clickhouse_url.get_secret_value())
        return f"{parts.scheme}://{parts.username}:***@{parts.hostname}:{parts.port}{parts.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the services, their addresses, processes and files, without the password."""
        server = self.model_server
        return {
            "clickhouse": {"url": self.shown_url, **_process(self.clickhouse)},
            "model_server": server
            and {
                "url": server.url,
                "is": "trajkit serve" if server.models else _STAND_IN,
                "models": list(server.models),
                "mistakes": server.mistakes,
                **_process(server.process),
            },
            "model": self.model,
            "config_file": str(self.config_file),
            "config_source": str(self.config_source),
            "data_folder": str(self.data_folder),
        }

    def __str__(self) -> str:
        rows = [("ClickHouse", *_standing(self.clickhouse), self.shown_url)]
        if server := self.model_server:
            is_stand_in = f"{_STAND_IN}; {server.mistakes:.0%} mistakes"
            about = f"{server.url}  {', '.join(server.models) or is_stand_in}"
            rows.append(("model server", *_standing(server.process), about))
        else:
            rows.append(("model", "elsewhere", "", "", self.model or "as the configuration says"))
        rows.append(("gateway", "in each command", "", "", str(self.config_file)))
        rows.append(("data", "", "", "", str(self.data_folder)))
        headings = ("service", "state", "process", "since", "where")
        return table_text([Cell(each, is_number=each == "process") for each in headings], rows)

    def print_text(self) -> None:
        """Print the services to stdout, and suggested commands to stderr."""
        from trajkit.stack.local import recipe_config

        result_text(str(self))
        for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
            if os.environ.get(name):
                talk(f"note: {name} is set, and other commands use it instead of this stack")
        talk("next:")
        if self.config_source == recipe_config().resolve():
            talk("  trajkit rollout babyai --task goto --variant history_and_reasoning --episodes 20")
            talk("  trajkit export --metric episode_return --min 0.7")
        talk("  trajkit status")
        talk("  trajkit down")


def _standing(process: Process) -> tuple[str, str, str]:
    state = "running" if process.is_running else "not running"
    return state, str(process.pid), f"{process.started_at:%Y-%m-%d %H:%M:%S} UTC"


def _process(process: Process) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "started_at": process.started_at.isoformat(),
        "is_running": process.is_running,
    }


def state_path(folder: Path | None = None) -> Path:
    """Return the path of a working folder's state file."""
    return (folder or Path()) / STATE_FOLDER / STATE_FILE


def read_state(folder: Path | None = None) -> LocalStack | None:
    """Return the recorded stack of a working folder, running or not; None when there is none.

    Raises:
        StackError: The file cannot be read.
    """
    path = state_path(folder)
    try:
        return LocalStack.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StackError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        raise StackError(
            f"{path} is not a state file of this trajkit: {error.errors()[0]['msg']}",
            hint="remove it, and run `trajkit up` again; it holds no data",
        ) from None  # the error would quote the file's content, including the password


def write_state(state: LocalStack, folder: Path | None = None) -> None:
    """Write the state for later commands, readable by its owner only."""
    value = state.model_dump(mode="json") | {"clickhouse_url": state.clickhouse_url.get_secret_value()}
    write_json(state_path(folder), value, mode=0o600)


def local_stack(folder: Path | None = None) -> LocalStack | None:
    """Return the local stack of a working folder; None when its database does not run.

    Raises:
        StackError: The state file cannot be read.
    """
    state = read_state(folder)
    return state if state is not None and state.clickhouse.is_running else None
