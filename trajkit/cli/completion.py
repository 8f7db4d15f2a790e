"""`trajkit completion`: the script that teaches a shell to complete, and the answers to what it asks."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, ClassVar, NoReturn

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

from trajkit._core import console

PROGRAM = "trajkit"
ASKED = "_TRAJKIT_COMPLETE"
"""The variable in which a shell asks: what click itself looks for."""

_LINE, _BREAKS = "_TRAJKIT_LINE", "_TRAJKIT_BREAKS"
_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            plain)
                [[ $value == *' '* ]] && printf -v value %%q "$value"
                COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done < <(
        _TRAJKIT_LINE="${COMP_LINE:0:COMP_POINT}" _TRAJKIT_BREAKS="$COMP_WORDBREAKS" \\
            %(complete_var)s=bash_complete "$1" 2>/dev/null
    )
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""click's own script hands over words that bash cut at every colon and equals sign."""

_SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
\b
bash: trajkit completion bash > ~/.local/share/bash-completion/completions/trajkit
zsh:  trajkit completion zsh > ~/.zfunc/_trajkit, with fpath+=~/.zfunc before compinit in ~/.zshrc
fish: trajkit completion fish > ~/.config/fish/completions/trajkit.fish

For this shell alone: source <(trajkit completion bash).
"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, and the values it can know.

    Those are the stores and jobs of the folder, samples, environments and their tasks, functions, variants
    and metrics of the gateway's configuration, formats, recipes.
    """
    from trajkit.cli.main import cli

    console.result_text(_CLASSES[shell](cli, {}, PROGRAM, ASKED).source().rstrip())


def answer() -> NoReturn:
    """Answer what a shell asks for, and end this process; where something fails it has nothing to offer."""
    from trajkit.cli.main import cli

    for each in _CLASSES.values():
        add_completion_class(each)
    click.Parameter.shell_complete = _of_parameter  # type: ignore[method-assign]  # this process does no more
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        shell_complete(cli, {}, PROGRAM, ASKED, os.environ[ASKED])
    sys.exit(0)


_click_offers = click.Parameter.shell_complete


def _of_parameter(self: click.Parameter, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    """What we know of a value, else what click knows; files where neither has anything that fits."""
    from trajkit.cli.offered import may_be_path, offered

    values = offered(ctx, self)
    if values is None:
        return _click_offers(self, ctx, incomplete)
    before, comma, last = incomplete.rpartition(",") if _is_list(self) else ("", "", incomplete)
    fitting = [f"{before}{comma}{value}" for value in values if value.startswith(last)]
    if not fitting and may_be_path(self):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(value) for value in fitting if value.isprintable()]  # a shell takes lines


def _is_list(parameter: click.Parameter) -> bool:
    return "," in (parameter.metavar or "")


class _Named(ShellComplete):
    """Keeps the name of an option before its value, as these shells replace the whole word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """What fits."""
        name, equals, _ = incomplete.partition("=")
        found = super().get_completions(args, incomplete)
        if equals and name.startswith("--"):
            for item in found:
                item.value = f"{name}={item.value}"
        return found


class _Bash(BashComplete):
    """Reads the line itself, and answers with what comes after the last colon or equals sign in it."""

    source_template: ClassVar[str] = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the cursor, and the beginning of the one at it."""
        line = os.environ[_LINE]
        words = split_arg_string(line)[1:]
        return (words, "") if not words or line[-1:].isspace() else (words[:-1], words[-1])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """What fits, without what bash takes for earlier words."""
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


_CLASSES: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
