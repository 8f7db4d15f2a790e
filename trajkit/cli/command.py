"""Make a click command of a function: its signature and its docstring are the whole declaration.

Positional parameters become arguments, keyword-only ones options. The summary of the docstring is the short
help, what follows it the long help, `Args:` the help of the options and `Example:` what may be typed. The
command prints what the function returns: as text, or as JSON with `--json`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import click

from trajkit._core import console
from trajkit.cli.flags import everywhere
from trajkit.commands.option_group import type_hints
from trajkit.commands.options import Option

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Example):$", re.MULTILINE)
_ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)


class Documentation(NamedTuple):
    """The parts of a docstring."""

    summary: str
    """The first paragraph."""
    text: str
    """The paragraphs between the summary and the first section."""
    arguments: dict[str, str]
    """Help by parameter."""
    example: str
    """The lines under `Example:`."""


def documentation(function: Callable[..., Any]) -> Documentation:
    """Read the docstring of a function (Google style)."""
    parts = _SECTION.split(inspect.getdoc(function) or "")
    summary, _, text = parts[0].strip().partition("\n\n")
    sections = {
        name: textwrap.dedent(body).strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    names = _ARGUMENT.split("\n" + sections.get("Args", ""))
    arguments = {name: " ".join(body.split()) for name, body in zip(names[1::2], names[2::2], strict=True)}
    return Documentation(" ".join(summary.split()), text.strip(), arguments, sections.get("Example", ""))


def command(function: Callable[..., Any], *, name: str | None = None) -> click.Command:
    """The click command of a function.

    Args:
        function: A command.
        name: Its name on the command line; by default the function's.
    """
    told = documentation(function)
    parameters = list(_parameters(function, told.arguments))
    has_result = inspect.signature(function).return_annotation not in (None, "None")
    if has_result:
        parameters.append(click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."))

    def call(as_json: bool = False, **given: Any) -> int:
        result = function(**given)
        if result is None:
            return 0
        own = getattr(result, "print_json" if as_json else "print_text", None)
        if own is not None:
            own()
        elif as_json:
            console.result_json(result.to_json())
        elif text := str(result):
            console.result_text(text)
        if (failure := getattr(result, "failure", None)) is not None:
            raise failure
        return int(result.exit_code)

    text = "\n\n".join((told.summary, *map(_as_it_is, told.text.split("\n\n")))).rstrip()
    if told.example:
        text += f"\n\n\b\n{told.example}"
    return click.Command(
        name or function.__name__.rstrip("_").replace("_", "-"),
        callback=call,
        params=[*parameters, *everywhere(is_hidden=True)],
        help=text,
        short_help=told.summary,
    )


def _as_it_is(paragraph: str) -> str:
    """A paragraph that click wraps, unless it is set in, such as code or a list."""
    return f"\b\n{paragraph}" if paragraph.startswith(" ") else paragraph


def _parameters(function: Callable[..., Any], told: dict[str, str]) -> Iterator[click.Parameter]:
    hints = type_hints(function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            yield _option(parameter, hints[parameter.name], told[parameter.name])
        else:
            yield _argument(parameter, hints[parameter.name])


def _argument(parameter: inspect.Parameter, hint: Any) -> click.Argument:
    kind = _kind(hint)
    is_many = parameter.kind is inspect.Parameter.VAR_POSITIONAL or kind.option.is_repeated
    is_required = parameter.default is inspect.Parameter.empty
    metavar = kind.option.metavar
    return click.Argument(
        [parameter.name],
        nargs=-1 if is_many else 1,
        required=is_required,
        type=kind.type,
        metavar=metavar if metavar is None or is_required else f"[{metavar}]",
        **({} if is_required or is_many else {"default": parameter.default}),
        callback=None if kind.option.read is None else _reading(kind.option),
    )


def _option(parameter: inspect.Parameter, hint: Any, text: str) -> click.Option:
    kind = _kind(hint)
    flag = f"--{parameter.name.rstrip('_').replace('_', '-')}"
    is_required = parameter.default is inspect.Parameter.empty
    default = None if is_required else parameter.default
    is_shown = default is not None and not isinstance(default, bool) and default not in ("", ())
    if kind.is_flag and default is not False:
        flag += f"/--no-{flag[2:]}"
    reads = kind.option.read is not None or kind.option.is_list
    callback = _reading(kind.option) if reads else None
    given: dict[str, Any] = (
        {} if is_required else {"default": default or None if kind.option.is_repeated else default}
    )
    return click.Option(
        [parameter.name, *filter(None, (kind.option.short, flag, kind.option.alias))],
        is_flag=kind.is_flag,
        multiple=kind.option.is_repeated,
        required=is_required,
        type=None if kind.is_flag else kind.type,
        **given,
        show_default=is_shown,
        metavar=kind.option.metavar,
        help=text,
        callback=_reading_settings(flag, kind.option) if kind.is_mapping else callback,
    )


def _reading_settings(flag: str, option: Option) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback of click that makes a dictionary of NAME=VALUE."""

    def read(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, Any]:
        from trajkit.environments.settings import typed

        return {
            name: option.read(text) if option.read else text
            for name, text in typed(value, option=flag).items()
        }

    return read


def _reading(option: Option) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback of click that reads each typed text."""

    def read(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value is None or context.resilient_parsing:
            return value
        texts = list(value) if isinstance(value, tuple) else [value]
        if option.is_list:
            texts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
        if option.read is not None:
            texts = [option.read(text) if isinstance(text, str) else text for text in texts]
        return tuple(texts) if option.is_repeated or option.is_list else texts[0]

    return read


class _Kind(NamedTuple):
    type: click.ParamType[Any]
    is_flag: bool
    option: Option
    is_mapping: bool = False


def _kind(hint: Any) -> _Kind:
    """What click must know of a type."""
    found: Option | None = None
    while True:
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            outer = next((mark for mark in reversed(marks) if isinstance(mark, Option)), None)
            found = found or outer
        elif get_origin(hint) in (Union, types.UnionType):
            known = [each for each in get_args(hint) if each is not type(None)]
            marked = [each for each in known if get_origin(each) in (Annotated, Literal)]
            plain = [each for each in known if each in (bool, int, float)]
            hint = known[0] if len(known) == 1 else (marked or plain or [str])[0]
            if len(known) > 1 and str in known and not marked:
                hint = str
        else:
            break
    option = found or Option()
    if option.is_repeated and get_origin(hint) is Mapping:
        return _Kind(click.STRING, False, option, is_mapping=True)
    if get_origin(hint) is Literal:
        return _Kind(click.Choice([str(each) for each in get_args(hint)]), False, option)
    if hint is bool:
        return _Kind(click.BOOL, True, option)
    if option.read is None and hint in (int, float):
        return _Kind(_number(hint, option), False, option)
    return _Kind(click.Path() if hint is Path else click.STRING, False, option)


def _number(kind: type, option: Option) -> click.ParamType[Any]:
    if option.least is None and option.most is None:
        return click.INT if kind is int else click.FLOAT
    bounds: dict[str, Any] = {
        "min": option.least,
        "max": option.most,
        "min_open": option.is_open and option.least is not None,
        "max_open": option.is_open and option.most is not None,
    }
    return click.IntRange(**bounds) if kind is int else click.FloatRange(**bounds)
