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
    left_out = SHOWING
    found = {}
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            flag = max(parameter.opts, key=len).lstrip("-").replace("-", "_")
            if not parameter.hidden and parameter.expose_value and flag not in left_out:
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
    parameters = set(inspect.signature(function(name)).parameters)
    assert parameters == set(options(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_typed_without_a_name_comes_first_and_the_rest_by_name(name):
    parameters = inspect.signature(function(name)).parameters
    arguments = [n for n, option in options(name).items() if isinstance(option, click.Argument)]
    by_name = inspect.Parameter.KEYWORD_ONLY
    by_place = [n for n, parameter in parameters.items() if parameter.kind != by_name]
    assert by_place == arguments


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_and_choices_are_those_of_the_command(name):
    parameters = inspect.signature(function(name)).parameters
    for option_name, option in options(name).items():
        parameter = parameters[option_name]
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            continue
        assert (parameter.default is inspect.Parameter.empty) == is_required(option), option_name
        if (default := default_of(option)) is not None:
            assert parameter.default == default, option_name
        if isinstance(option.type, click.Choice) and not option.multiple:
            assert choices(parameter.annotation, function(name)) == set(option.type.choices), option_name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_is_told_of(name):
    documentation = inspect.getdoc(function(name)) or ""
    told = documentation.partition("Args:")[2]
    for parameter in inspect.signature(function(name)).parameters:
        assert f"\n    {parameter}: " in told, parameter


def is_required(option: click.Parameter) -> bool:
    """Whether the command does nothing without it; a missing argument may stand for the last store."""
    return option.required


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


@pytest.mark.parametrize("name", trajkit.__all__)
def test_no_package_has_the_name_of_a_public_function(name):
    assert importlib.util.find_spec(f"trajkit.{name}") is None
