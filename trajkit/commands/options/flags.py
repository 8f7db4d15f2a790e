"""Flags of every command: --version, --verbose and --quiet."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

import trajkit
from trajkit._core.output import console
from trajkit._core.outside import visible
from trajkit._core.secrets import hidden


def everywhere(*, is_hidden: bool = False) -> list[click.Parameter]:
    """Return the flags, which act when parsed and are not passed on.

    Args:
        is_hidden: Whether the help omits them.
    """

    def verbose(ctx: click.Context, parameter: click.Parameter, is_on: bool) -> None:
        if is_on:
            show_logs()

    def quiet(ctx: click.Context, parameter: click.Parameter, is_on: bool) -> None:
        if is_on:
            ctx.with_resource(console.quiet())

    def version(ctx: click.Context, parameter: click.Parameter, is_on: bool) -> None:
        if is_on and not ctx.resilient_parsing:
            click.echo(f"trajkit, version {trajkit.__version__}")
            ctx.exit()

    shared: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True, "hidden": is_hidden}
    return [
        click.Option(["-V", "--version"], callback=version, help="Show the version and exit.", **shared),
        click.Option(["-v", "--verbose"], callback=verbose, help="Show what the libraries log.", **shared),
        click.Option(
            ["-q", "--quiet"],
            callback=quiet,
            help="Print results and errors only: no notes, no progress.",
            **shared,
        ),
    ]


def show_logs() -> None:
    """Print the log records of trajkit and its libraries on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_WithoutSecrets("%(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class _WithoutSecrets(logging.Formatter):
    """Removes secrets from log records, such as an address with a password or a header with a key."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, with the traceback that belongs to it."""
        return without_secrets(super().format(record))


def without_secrets(text: str) -> str:
    """A traceback or a log line without the values that libraries quote in them."""
    typed = (word.partition("=")[2] if word.startswith("-") else word for word in sys.argv[1:])
    return visible(hidden(text, *(word for word in typed if "://" in word)), is_line=False)
