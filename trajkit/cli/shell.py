"""Answer the requests of a shell with the script of `trajkit completion`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, NoReturn

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from trajkit.commands.completion import ASKED, PROGRAM

_LINE, _BREAKS = "_TRAJKIT_LINE", "_TRAJKIT_BREAKS"


def answer() -> NoReturn:
    """Answer a request of the shell, and end this process; on failure nothing is offered."""
    from trajkit.cli.main import cli

    for each in (_Bash, _Zsh, _Fish):  # instead of click's own
        add_completion_class(each)
    click.Parameter.shell_complete = _of_parameter  # type: ignore[method-assign]  # this process does no more
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        shell_complete(cli, {}, PROGRAM, ASKED, os.environ[ASKED])
    sys.exit(0)


_click_offers = click.Parameter.shell_complete


def _of_parameter(self: click.Parameter, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    """Our completions of a value, else those of click; files if neither has any that match."""
    from trajkit.cli.offered import may_be_path, offered

    values = offered(ctx, self)
    if values is None:
        return _click_offers(self, ctx, incomplete)
    is_list = "," in (self.metavar or "")
    before, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    fitting = [f"{before}{comma}{value}" for value in values if value.startswith(last)]
    if not fitting and may_be_path(self):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(value) for value in fitting if value.isprintable()]  # a shell takes lines


class _Named(ShellComplete):
    """Keeps the name of an option before its value, as these shells replace the whole word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """The matches."""
        name, equals, _ = incomplete.partition("=")
        found = super().get_completions(args, incomplete)
        if equals and name.startswith("--"):
            for item in found:
                item.value = f"{name}={item.value}"
        return found


class _Bash(BashComplete):
    """Reads the line itself, and answers with what comes after the last colon or equals sign in it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and the beginning of the one at it."""
        line = os.environ[_LINE]
        words = split_arg_string(line)[1:]
        return (words, "") if not words or line[-1:].isspace() else (words[:-1], words[-1])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """The matches, without what bash takes for earlier words."""
        found = super().get_completions(args, incomplete)
        breaks = set(":=") & set(os.environ.get(_BREAKS, ""))
        cut = max((incomplete.rfind(each) for each in breaks), default=-1) + 1
        for item in found:
            if cut and item.value.startswith(incomplete[:cut]):
                item.value = item.value[cut:]
        return found


class _Zsh(_Named, ZshComplete):
    pass


class _Fish(_Named, FishComplete):
    pass
