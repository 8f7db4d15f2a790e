"""Make a click command of a function: its signature and its docstring are the whole declaration.

Positional parameters become arguments, keyword-only ones options. The summary of the docstring is the short
help, the text after it the long help, `Args:` the help of the options and `Example:` the examples. The
command prints what the function returns: as text, or as JSON with `--json`.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import click

from trajkit._core.address import is_address, place_of
from trajkit._core.output import console
from trajkit._core.output.result import Result, Running
from trajkit.commands.options.flags import everywhere
from trajkit.commands.options.group import type_hints
from trajkit.commands.options.types import Option
from trajkit.errors import RequestError, TrajkitError

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
    signature = inspect.signature(function)
    many = inspect.Parameter.VAR_POSITIONAL
    rest = next((each.name for each in signature.parameters.values() if each.kind is many), "")
    parameters.append(click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."))

    def call(as_json: bool, **given: Any) -> int:
        # a repeatable option that was not typed has the default of the function
        given = {name: value for name, value in given.items() if value not in ((), {})}
        try:
            with console.rows_as_json(as_json):
                result: Result = function(*given.pop(rest, ()), **given)
        except TrajkitError as error:
            if isinstance(error.result, Result):
                _print(error.result, as_json=as_json)
            raise
        _print(result, as_json=as_json)
        if result.failure is not None:
            raise result.failure
        return result.exit_code

    parts = told.text.split("\n\n")
    # an indented part, such as a table, keeps its lines
    paragraphs = [f"\b\n{textwrap.dedent(each)}" if each.startswith(" ") else each for each in parts]
    paragraphs.insert(0, told.summary)
    text = "\n\n".join((*paragraphs, f"\b\n{told.example}") if told.example else paragraphs).rstrip()
    return _Command(
        name or function.__name__.rstrip("_").replace("_", "-"),
        callback=call,
        params=[*parameters, *everywhere(is_hidden=True)],
        help=text,
        short_help=told.summary,
    )


def _print(result: Result, *, as_json: bool) -> None:
    if as_json:
        result.print_json()
    else:
        result.print_text()
    if isinstance(result, Running):
        sys.stdout.flush()
        with console.rows_as_json(as_json):
            result.wait()


class _Command(click.Command):
    """Assigns an option that is `of` another to the value typed before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; map each value of the other to the options that belong to it."""
        typed = list(args)
        left = super().parse_args(ctx, args)
        of = {str(each.name): each.of for each in self.params if isinstance(each, _Option) and each.of}
        if ctx.resilient_parsing or not of:
            return left
        texts, _, order = self.make_parser(ctx).parse_args(args=typed)
        names = [str(each.name) for each in order if each.name in {*of, *of.values()}]
        pairs = {name: zip(texts[name], ctx.params.pop(name), strict=True) for name in dict.fromkeys(names)}
        for owner in set(of.values()):
            parts = [name for name in of if of[name] == owner]
            given = [(name, *next(pairs[name])) for name in names if name in (owner, *parts)]
            ctx.params[owner] = _joined(owner, parts, given)
        for name in of:
            ctx.params.pop(name, None)
        return left


def _joined(owner: str, parts: list[str], given: list[tuple[str, str, Any]]) -> dict[str, tuple[Any, ...]]:
    """The values of `parts` by the value of `owner` before them, in the order of `parts`.

    Args:
        owner: Name of the option that others belong to.
        parts: Names of those others.
        given: What was typed, in its order: a name, the text, and the value that was read.

    Raises:
        RequestError: An owner is typed twice, or a part without one, or twice for one.
    """
    joined: dict[str, dict[str, Any]] = {}
    for name, text, value in given:
        if name == owner and text in joined:
            flags = " and ".join(f"--{part}" for part in parts)
            raise RequestError(f"--{name} {text} is given twice", hint=f"give its {flags} after one of them")
        if name == owner:
            joined[text] = {}
        elif not joined:
            raise RequestError(
                f"--{name} {text} has no --{owner} before it", hint=f"--{owner} NAME --{name} {text}"
            )
        elif name in joined[last := list(joined)[-1]]:
            raise RequestError(f"--{owner} {last} has two --{name}")
        else:
            joined[last][name] = value
    return {key: tuple(map(values.get, parts)) for key, values in joined.items()}


class _Option(click.Option):
    of: str | None = None
    """The option before it that it belongs to."""


def _parameters(function: Callable[..., Any], told: dict[str, str]) -> Iterator[click.Parameter]:
    hints = type_hints(function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            yield _option(parameter, hints[parameter.name], told[parameter.name])
        else:
            yield _argument(parameter, hints[parameter.name])
            if (listing := _kind(hints[parameter.name]).option.listing) is not None:
                yield _list_flag(listing, f"List the {parameter.name}s that come with trajkit, and exit.")


def _list_flag(listing: Callable[[], str], text: str) -> click.Option:
    """The flag that lists the values of an argument, and exits."""

    def show(context: click.Context, parameter: click.Parameter, is_on: bool) -> None:
        if is_on and not context.resilient_parsing:
            console.result_text(listing())
            context.exit()

    return click.Option(["--list"], is_flag=True, is_eager=True, expose_value=False, callback=show, help=text)


def _argument(parameter: inspect.Parameter, hint: Any) -> click.Argument:
    kind = _kind(hint)
    is_many = parameter.kind is inspect.Parameter.VAR_POSITIONAL or kind.is_repeated
    is_required = (
        parameter.default is inspect.Parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
    )
    metavar = kind.option.metavar
    return click.Argument(
        [parameter.name],
        nargs=-1 if is_many else 1,
        required=is_required,
        type=kind.type,
        metavar=metavar if metavar is None or is_required else f"[{metavar}]",
        **({} if is_required or is_many else {"default": parameter.default}),
        callback=_callback(kind, reads=kind.option.read is not None),
    )


def _callback(kind: _Kind, *, reads: bool) -> Callable[[click.Context, click.Parameter, Any], Any] | None:
    """A callback of click that refuses an address for a local path, then reads the value."""
    if kind.option.takes_address or not kind.is_path:
        return _reading(kind) if reads else None

    def check(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        for text in value if isinstance(value, tuple) else (value,):
            if is_address(text):
                name = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.name
                raise RequestError(
                    f"{name} takes a local path, and {place_of(text)} is an address",
                    hint=kind.option.is_local_because,
                )
        return _reading(kind)(context, parameter, value) if reads else value

    return check


def _option(parameter: inspect.Parameter, hint: Any, text: str) -> click.Option:
    kind = _kind(hint)
    flag = f"--{parameter.name.rstrip('_').replace('_', '-')}"
    is_required = parameter.default is inspect.Parameter.empty
    default = None if is_required else parameter.default
    is_shown = default is not None and default is not False and default not in ("", ())
    if kind.is_flag and default is not False:
        flag += f"/{kind.option.negative or f'--no-{flag[2:]}'}"
    reads = kind.option.read is not None or kind.option.is_list or kind.is_mapping
    preset: dict[str, Any] = {} if is_required else {"default": default}
    if kind.is_repeated:
        preset = {"default": default} if default and not kind.is_mapping and not kind.option.of else {}
    option = _Option(
        [parameter.name, *filter(None, (kind.option.short, flag, kind.option.alias))],
        is_flag=kind.is_flag,
        multiple=kind.is_repeated,
        required=is_required,
        type=None if kind.is_flag else kind.type,
        **preset,
        show_default=is_shown,
        metavar=kind.option.metavar,
        help=text,
        callback=_callback(kind, reads=reads),
    )
    option.of = kind.option.of
    return option


def _reading(kind: _Kind) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback of click that reads each typed text."""
    option = kind.option

    def read(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value is None or context.resilient_parsing:
            return value
        texts = list(value) if isinstance(value, tuple) else [value]
        if option.is_list:
            texts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
        if kind.is_mapping:
            return _mapping(parameter, texts, option)
        if option.read is not None:
            texts = [option.read(text) if isinstance(text, str) else text for text in texts]
        return tuple(texts) if kind.is_repeated or option.is_list else texts[0]

    return read


def _mapping(parameter: click.Parameter, texts: list[str], option: Option) -> dict[str, Any]:
    """The values by name of a repeated option that takes NAME=VALUE, or a text that `pair` splits.

    Raises:
        RequestError: A text has no `=`, or a name is given twice.
    """
    flag = max(parameter.opts, key=len)
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (text if option.pair is None else "=".join(option.pair(text))).partition("=")
        if not (equals and name.strip()):
            raise RequestError(f"{flag} {text!r} is not {parameter.metavar or 'NAME=VALUE'}")
        if name in values:
            raise RequestError(f"{flag} {name} is given twice")
        values[name] = value if option.read is None else option.read(value)
    return values


_PLAIN = (Path, str, bool, int, float)
"""In a union, the first of these types decides how the option is typed."""


class _Kind(NamedTuple):
    type: click.ParamType[Any]
    is_flag: bool
    option: Option
    is_mapping: bool = False
    is_path: bool = False
    """Whether it is a path or a name of one, and not a store."""

    @property
    def is_repeated(self) -> bool:
        return self.option.is_repeated or self.is_mapping or self.option.of is not None


def _kind(hint: Any) -> _Kind:
    """What click must know about a type."""
    is_path = False
    said: dict[str, Any] = {}  # fields of the options around the type; the outer one wins
    while True:
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            for mark in reversed([mark for mark in marks if isinstance(mark, Option)]):
                new = {
                    n: value for n, value in vars(mark).items() if value is not None and value is not False
                }
                said = {**new, **said}
        elif get_origin(hint) in (Union, types.UnionType):
            known = [each for each in get_args(hint) if each is not type(None)]
            is_path = Path in known and len(known) == 2  # a store may also be an object
            marked = [each for each in known if get_origin(each) in (Annotated, Literal)]
            plain = [each for each in known if each in _PLAIN]
            hint = known[0] if len(known) == 1 else (marked or sorted(plain, key=_PLAIN.index) or [str])[0]
        else:
            break
    option = Option(**said)
    if get_origin(hint) is Literal:
        return _Kind(click.Choice([str(each) for each in get_args(hint)]), False, option)
    if get_origin(hint) is Mapping:
        return _Kind(click.STRING, False, option, is_mapping=True)
    if hint is bool:
        return _Kind(click.BOOL, True, option)
    if option.read is None and hint in (int, float):
        return _Kind(_number(hint, option), False, option)
    return _Kind(click.Path() if hint is Path else click.STRING, False, option, is_path=is_path)


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
