"""Commands as steps of recipes: list them and their options, check arguments, call them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from trajkit._core.output import console
from trajkit.commands.catalog import COMMANDS, load
from trajkit.commands.recipe.recipe import Value
from trajkit.errors import RequestError, TrajkitError

_NO_VERB = frozenset({"run"})


class Option(NamedTuple):
    """An option or an argument of a command."""

    name: str
    """In a recipe: that of the flag, `-` as `_`."""
    flag: str | None
    """As it is typed, such as `--num-train-epochs`; None for an argument, which is typed without."""
    negative: str | None
    """The negative form of a flag, such as `--no-lora`; None if it has none."""
    is_flag: bool
    """Whether it takes no value."""
    is_repeated: bool
    """Whether it may be given several times."""
    text: str
    """Its help."""
    of: str | None = None
    """The option that it belongs to, such as `metric` of `min`; None for none."""


class Verb(NamedTuple):
    """A command."""

    name: str
    """As it is typed, such as `sft local`."""
    text: str
    """Its help in a sentence."""
    options: tuple[Option, ...]
    """Arguments in their order, then options."""

    def option(self, name: str) -> Option | None:
        """An option by its name in a recipe."""
        return next((option for option in self.options if option.name == name), None)

    @property
    def is_job(self) -> bool:
        """Whether it starts a job, which has a name and a folder of its own."""
        return all(self.option(name) is not None for name in ("name", "runs", "detach"))


class Unfit(Exception):
    """Arguments that a command refuses before it does anything.

    Args:
        message: Why.
        option: Name of the option; None for all of them.
    """

    def __init__(self, message: str, option: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.option = option


def names() -> list[str]:
    """The names of all commands that a step may be, in the order of their help."""
    return [name for first in COMMANDS if first not in _NO_VERB for name in _below(first, _command(first))]


def find(name: str) -> Verb | None:
    """A command by its name; None if no step may be of that name."""
    command = _command(name)
    if command is None or not _is_verb(command):
        return None
    text = command.get_short_help_str(limit=200)
    return Verb(
        name, text, tuple(_option(each) for each in command.params if not getattr(each, "hidden", False))
    )


def check(verb: Verb, arguments: Sequence[str]) -> None:
    """Read the arguments as the command does, without calling it.

    Raises:
        Unfit: The command refuses them.
    """
    command = _command(verb.name)
    assert command is not None
    try:
        command.make_context(verb.name, list(arguments))
    except click.UsageError as error:
        parameter = getattr(error, "param", None)
        name = None if parameter is None else _name(parameter)
        raise Unfit(error.format_message(), name) from error
    except TrajkitError as error:
        raise Unfit(str(error), None) from error


def call(verb: Verb, arguments: Sequence[str]) -> int:
    """Run the command in this process, and return its exit code. It prints as on a command line.

    Raises:
        TrajkitError: It failed.
        KeyboardInterrupt: It was stopped.
    """
    command = _command(verb.name)
    assert command is not None
    try:
        with console.opened():
            result = command.main(list(arguments), prog_name=f"trajkit {verb.name}", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.UsageError as error:
        raise RequestError(error.format_message()) from error
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return result if isinstance(result, int) else 0


def _command(name: str) -> click.Command | None:
    first, *parts = name.split() or ("",)
    found = None if first in _NO_VERB else load(first)
    for part in parts:
        found = found.commands.get(part) if isinstance(found, click.Group) else None
    return found


def _below(name: str, command: click.Command | None) -> Iterator[str]:
    if command is not None and _is_verb(command):
        yield name
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from _below(f"{name} {part}", inner)


def typed(verb: Verb, options: dict[str, Value]) -> list[str]:
    """The options as they are typed after the command.

    Raises:
        Unfit: A value is of a shape that an option cannot take.
    """
    given = [
        (option, options[option.name]) for option in verb.options if options.get(option.name) is not None
    ]
    arguments = [text for option, value in given if option.flag is None for text in _texts(option, value)]
    flags = [
        text
        for option, value in given
        if option.flag is not None
        for text in _flags(option, value, [each for each in verb.options if each.of == option.name])
    ]
    is_odd = any(text.startswith("-") for text in arguments)
    return [*flags, "--", *arguments] if is_odd else [*arguments, *flags]


def _flags(option: Option, value: Any, parts: Sequence[Option] = ()) -> Iterator[str]:
    assert option.flag is not None
    if parts and isinstance(value, dict):
        for name, of_name in value.items():  # such as {"episode_return": [0.7, null]}, the least and the most
            yield from _flags(option, name)
            if not isinstance(of_name, list) or len(of_name) != len(parts):
                names = ", ".join(each.name for each in parts)
                raise Unfit(f"{option.name} {name!r} takes a list of {names}, not {of_name!r}", option.name)
            for part, each in zip(parts, of_name, strict=True):
                yield from () if each is None else _flags(part, each)
        return
    if option.is_flag:
        if not isinstance(value, bool):
            raise Unfit(f"{option.name} is true or false, not {value!r}", option.name)
        if value or option.negative is not None:
            yield option.flag if value else option.negative or ""
        return
    for text in _texts(option, value):
        # `--option=-1`: a value that begins with a dash would be taken for an option
        yield from (f"{option.flag}={text}",) if text.startswith("-") else (option.flag, text)


def _texts(option: Option, value: Value) -> list[str]:
    if isinstance(value, dict):
        if not option.is_repeated:
            raise Unfit(f"{option.name} takes one value, not names with values", option.name)
        return [f"{name}={_text(each)}" for name, each in value.items()]
    if isinstance(value, list):
        if not option.is_repeated:
            raise Unfit(f"{option.name} takes one value, not a list", option.name)
        return [_text(each) for each in value]
    return [_text(value)]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _is_verb(command: click.Command) -> bool:
    return not isinstance(command, click.Group) or command.invoke_without_command


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
        of=getattr(parameter, "of", None),
    )
