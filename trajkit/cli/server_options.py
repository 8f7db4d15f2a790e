"""Options of every command that reads a database: what it may take of the server, and whom to trust."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trajkit.commands.server import n_bytes_of

if TYPE_CHECKING:
    from trajkit.sources.access import Access

if TYPE_CHECKING:
    _Type = click.ParamType[int]
else:
    _Type = click.ParamType  # older releases of click take no argument here

Command = TypeVar("Command", bound=Callable[..., Any])


class Size(_Type):
    """A number of bytes: `2GB`, `500 MB` or plain digits (powers of 1000)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        return n_bytes_of(value)


def server_options(command: Command) -> Command:
    """Add `--max-threads`, `--max-server-memory` and `--ca-cert` to a command; `access_of` reads them."""
    for option in (
        click.option(
            "--ca-cert",
            "ca_certificate",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Trust the certificates that these (PEM) have signed.",
        ),
        click.option(
            "--max-server-memory",
            "max_memory_bytes",
            metavar="SIZE",
            type=Size(),
            help="Most memory of the server for a query, such as 2GB; two run at a time.",
        ),
        click.option(
            "--max-threads",
            metavar="N",
            type=click.IntRange(min=1),
            help="Most threads of the server for a query; two run at a time.",
        ),
    ):
        command = option(command)
    return command


def access_of(given: dict[str, Any]) -> Access:
    """Take what `server_options` added out of a command's options."""
    from trajkit.sources.access import Access

    names = [name for name in Access.model_fields if name in given]
    return Access(**{name: given.pop(name) for name in names})
