"""Every command is a function of the same name with the same options; a short list says what is not."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import trajkit
from trajkit.cli.main import cli

SHOWING = {"json", "quiet"}
"""Options that say how a result is printed: in Python it is a value."""


def commands(
    command: click.Command, name: str, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    """Every command below one, by what is typed."""
    if name and (not isinstance(command, click.Group) or command.invoke_without_command):
        yield name, command
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            inner = click.Context(found, info_name=each, parent=context)
            yield from commands(found, f"{name} {each}".strip(), inner)


COMMANDS = dict(commands(cli, "", click.Context(cli)))


def python_name(words: str) -> str:
    """What a command or an option is called in Python."""
    name = words.replace(" ", "_").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def options(name: str) -> dict[str, click.Parameter]:
    """What a function must take, by its name there."""
    found = {}
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            flag = max(parameter.opts, key=len).lstrip("-").replace("-", "_")
            if not parameter.hidden and parameter.expose_value and flag not in SHOWING:
                found[python_name(flag)] = parameter
        else:
            found[str(parameter.name)] = parameter
    return found


def function(name: str) -> Any:
    """The function of a command."""
    module = importlib.import_module(trajkit._MODULE_BY_NAME[python_name(name)])
    return getattr(module, python_name(name))


def test_the_tree_of_commands_is_walked():
    assert {"export", "sft local", "dpo together", "jobs wait", "archive", "archive verify", "try"} <= set(
        COMMANDS
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_function_with_its_options(name):
    assert python_name(name) in trajkit.__all__
    parameters = inspect.signature(function(name)).parameters
    assert set(parameters) == set(options(name))
    arguments = [n for n, option in options(name).items() if isinstance(option, click.Argument)]
    by_name = inspect.Parameter.KEYWORD_ONLY
    assert [n for n, parameter in parameters.items() if parameter.kind != by_name] == arguments
    told = (inspect.getdoc(function(name)) or "").partition("Args:")[2]
    for option_name, option in options(name).items():
        assert f"\n    {option_name}: " in told, option_name
        parameter = parameters[option_name]
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            continue
        # a missing argument may stand for the last store
        assert (parameter.default is inspect.Parameter.empty) == option.required, option_name
        if (default := default_of(option)) is not None:
            assert parameter.default == default, option_name
        if isinstance(option.type, click.Choice) and not option.multiple:
            assert choices(parameter.annotation, function(name)) == set(option.type.choices), option_name


def default_of(option: click.Parameter) -> Any:
    """The default that the command's help shows, in Python's types; None where nothing is decided there."""
    default = option.default
    if default is None or repr(default) == "Sentinel.UNSET" or callable(default):
        return None
    if isinstance(default, Path):
        return str(default)
    return None if default in ((), [], False, "") else default


def choices(annotation: str, function: Any) -> set[str]:
    """The texts of the `Literal` in a type, which may be an alias of the function's module."""
    known = inspect.unwrap(function).__globals__
    aliases = (str(known.get(name, "")) for name in re.findall(r"\w+", annotation))
    annotation = " ".join((annotation, *aliases))
    return {
        text
        for inner in re.findall(r"Literal\[(.*?)\]", annotation)
        for text in ast.literal_eval(f"[{inner}]")
    }


def test_no_package_has_the_name_of_a_public_function():
    assert not [name for name in trajkit.__all__ if importlib.util.find_spec(f"trajkit.{name}")]
