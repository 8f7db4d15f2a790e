"""The commands as the verbs of recipes: which options there are, checking them, calling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from trajkit.cli.main import COMMANDS, cli
from trajkit.commands.recipe.verb import Option, Unfit, Verb
from trajkit.errors import RequestError, TrajkitError

_NO_VERB = frozenset({"run"})


class CommandVerbs:
    """Every command but `run` itself.

    Args:
        debug: Whether errors travel with their tracebacks.
    """

    def __init__(self, *, debug: bool = False) -> None:
        self._debug = debug
        self._root = click.Context(cli, info_name="trajkit", obj={"debug": debug})

    def names(self) -> list[str]:
        """All of them, in the order of their help."""
        return [name for first in COMMANDS if first not in _NO_VERB for name in self._below(first)]

    def find(self, name: str) -> Verb | None:
        """A command by its name; None when there is none."""
        context = self._context(name)
        if context is None or not _is_command(context.command):
            return None
        command = context.command
        text = command.get_short_help_str(limit=200)
        return Verb(name, text, tuple(_option(each) for each in command.params if not _is_hidden(each)))

    def check(self, verb: Verb, arguments: Sequence[str]) -> None:
        """Read the arguments as the command does, without calling it.

        Raises:
            Unfit: The command refuses them.
        """
        context = self._context(verb.name)
        assert context is not None
        try:
            context.command.make_context(context.info_name, list(arguments), parent=context.parent)
        except click.UsageError as error:
            parameter = getattr(error, "param", None)
            name = None if parameter is None else _name(parameter)
            raise Unfit(error.format_message(), name) from error
        except TrajkitError as error:
            raise Unfit(str(error), None) from error

    def call(self, verb: Verb, arguments: Sequence[str]) -> int:
        """Run the command in this process, and give its exit code.

        Raises:
            TrajkitError: It failed.
            KeyboardInterrupt: It was stopped.
        """
        words = [*(["--debug"] if self._debug else []), *verb.name.split(), *arguments]
        try:
            result = cli.main(args=words, prog_name="trajkit", standalone_mode=False)
        except click.exceptions.Exit as leaving:
            return leaving.exit_code
        except click.UsageError as error:
            raise RequestError(error.format_message()) from error
        except click.Abort as error:
            raise KeyboardInterrupt from error
        return result if isinstance(result, int) else 0

    def _context(self, name: str) -> click.Context | None:
        context = self._root
        for word in name.split():
            group = context.command
            if not isinstance(group, click.Group) or (context is self._root and word in _NO_VERB):
                return None
            command = group.get_command(context, word)
            if command is None:
                return None
            context = click.Context(command, info_name=word, parent=context)
        return context if context is not self._root else None

    def _below(self, name: str) -> Iterator[str]:
        context = self._context(name)
        assert context is not None
        if _is_command(context.command):
            yield name
        if isinstance(context.command, click.Group):
            for inner in context.command.list_commands(context):
                yield from self._below(f"{name} {inner}")


def _is_command(command: click.Command) -> bool:
    return not isinstance(command, click.Group) or command.invoke_without_command


def _is_hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.hidden


def _name(parameter: click.Parameter) -> str:
    """A parameter's name in a recipe: of the flag as it is typed, `-` as `_`."""
    if isinstance(parameter, click.Argument):
        return str(parameter.name)
    return max(parameter.opts, key=len).lstrip("-").replace("-", "_")


def _option(parameter: click.Parameter) -> Option:
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    is_argument = isinstance(parameter, click.Argument)
    return Option(
        name=_name(parameter),
        flag=None if is_argument else "-o" if "-o" in parameter.opts else max(parameter.opts, key=len),
        negative=parameter.secondary_opts[0] if parameter.secondary_opts else None,
        is_flag=bool(is_flag),
        is_repeated=bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1,
        text=" ".join((getattr(parameter, "help", None) or "").split()),
        choices=tuple(map(str, parameter.type.choices)) if isinstance(parameter.type, click.Choice) else None,
    )
