"""All commands, by job, each as a click command that is made on demand."""

from __future__ import annotations

import functools
import importlib
import inspect
import keyword
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trajkit import JOBS
from trajkit.commands.command import command

COMMANDS = tuple(name for names in JOBS.values() for name in names)
"""All of them, in that order. `trajkit/commands/NAME.py` has each."""


class Group(click.Group):
    """Commands below another, listed in the order of the functions in its file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in that order."""
        return list(self.commands)


@functools.cache
def load(name: str) -> click.Command | None:
    """Import a command, as a group if it has parts; None if there is no such command."""
    if name not in COMMANDS:
        return None
    module = importlib.import_module(f"trajkit.commands.{_function(name)}")
    parts = re.findall(rf"^def {name.replace('-', '_')}_(\w+)\(", _source(name), re.MULTILINE)
    if not parts:
        return command(getattr(module, _function(name)))
    function = getattr(module, _function(name), None)
    whole = None if function is None else command(function)
    group = Group(
        name,
        callback=None if whole is None else _unless_part(whole.callback),
        params=[] if whole is None else whole.params,
        invoke_without_command=whole is not None,
        help=inspect.getdoc(module) if whole is None else whole.help,
        short_help=short_help(name),
    )
    for part in parts:
        typed = part.replace("_", "-")
        group.add_command(command(getattr(module, f"{name.replace('-', '_')}_{part}"), name=typed))
    return group


def _unless_part(whole: Callable[..., Any] | None) -> Callable[..., Any]:
    """The callback of a group that is itself a command: it does nothing if a part of it is called."""

    def call(**given: Any) -> Any:
        is_whole = click.get_current_context().invoked_subcommand is None
        return whole(**given) if is_whole and whole is not None else None

    return call


def _function(name: str) -> str:
    name = name.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def _source(name: str) -> str:
    return Path(__file__).with_name(f"{_function(name)}.py").read_text(encoding="utf-8")


def short_help(name: str) -> str:
    """The first sentence of a command's docstring: of its function, else of its module."""
    found = re.search(
        rf'^def {_function(name)}\(.*?"""(.+?)(?:\n\n|""")', _source(name), re.MULTILINE | re.DOTALL
    )
    found = found or re.match(r'"""(.+?)(?:\n\n|""")', _source(name), re.DOTALL)
    return "" if found is None else " ".join(found[1].split())
