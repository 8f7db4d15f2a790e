"""Options that several commands share: declared once, as a `TypedDict`, and shown as parameters of each.

A command takes them as `**options: Unpack[Group]`. Each field is an option, and the docstring under it is its
help. Its default is the one of its `Option`, or of a frozen model that has a field of the same name; without
either it is False for a flag, and None for all others.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import pairwise
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from trajkit.commands.options.types import Option
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from trajkit.engines.engine import Engine, OnProgress

Function = TypeVar("Function", bound=Callable[..., Any])


def flattened(*models: type[BaseModel]) -> Callable[[Function], Function]:
    """Show the options of a function's group as parameters of its own, and fill in their defaults.

    Args:
        models: Frozen models whose fields have the defaults of the options of the same names.
    """
    fields = {name: field.default for model in models for name, field in model.model_fields.items()}
    known = {name: value.value if isinstance(value, Enum) else value for name, value in fields.items()}

    def flatten(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, last = signature.parameters.values()
        kinds = type_hints(function)
        group = get_args(kinds[last.name])[0]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=known.get(name, _default(kinds[name])),
                annotation=annotation.__forward_arg__,
            )
            for name, annotation in group.__annotations__.items()
        ]
        flat = signature.replace(parameters=[*own, *options])
        defaults = {option.name: option.default for option in options}

        @functools.wraps(function)
        def call(*values: Any, **given: Any) -> Any:
            flat.bind(*values, **given)  # refuses an unknown name
            return function(*values, **{**defaults, **given})

        call.__signature__ = flat  # type: ignore[attr-defined]
        call.__doc__ = _with_arguments(inspect.getdoc(function) or "", _texts(group))
        return cast(Function, call)

    return flatten


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each parameter of a function, and of each option of its group."""
    names = _Names(inspect.unwrap(function).__globals__)
    hints = get_type_hints(function, localns=names, include_extras=True)
    for hint in list(hints.values()):
        if get_origin(hint) is Unpack:
            group = get_args(hint)[0]
            modules = {field.__forward_module__ for field in group.__annotations__.values()}
            names = _Names(*(vars(sys.modules[module]) for module in modules))
            hints |= get_type_hints(group, localns=names, include_extras=True)
    return hints


class _Names(dict[str, Any]):
    """The names of modules; those imported only for type checkers are `Any`."""

    def __init__(self, *modules: Mapping[str, Any]) -> None:
        super().__init__({name: value for each in (vars(builtins), *modules) for name, value in each.items()})

    def __missing__(self, name: str) -> Any:
        return Any


def _default(hint: Any) -> Any:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    given = next((mark.default for mark in reversed(marks) if isinstance(mark, Option)), None)
    return False if given is None and hint is bool else given


@functools.cache
def _texts(group: type) -> dict[str, str]:
    """The docstrings under the fields of a group and of its base groups."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(group))).body
    assert isinstance(declared, ast.ClassDef)
    texts: dict[str, str] = {}
    for base in declared.bases:
        if isinstance(base, ast.Name) and base.id != "TypedDict":
            texts |= _texts(getattr(sys.modules[group.__module__], base.id))
    for field, text in pairwise(declared.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr)
            assert isinstance(text.value, ast.Constant)
            texts[field.target.id] = " ".join(str(text.value.value).split())
    return texts


def _with_arguments(docstring: str, texts: Mapping[str, str]) -> str:
    """The docstring with these added to its `Args:`."""
    before, raises, after = docstring.partition("\n\nRaises:")
    fill = functools.partial(textwrap.fill, width=106, initial_indent="    ", subsequent_indent="        ")
    lines = [fill(f"{name}: {text}") for name, text in texts.items()]
    return "\n".join([before, *(() if "\nArgs:\n" in before else ("", "Args:")), *lines]) + raises + after


class EngineOptions(TypedDict, total=False):
    """How to run a command in shards."""

    on: Annotated[str | None, Option(metavar="ENGINE")]
    """Cut the work into shards and run them on local (several processes), ray, ray://HOST:PORT or slurm:
    the result is the same. Default: this process, or local with --workers."""
    workers: Annotated[int | None, Option(least=1, metavar="N")]
    """Maximum shards at a time. Default: one per core, or as many as the cluster has room for."""


def engine_of(
    given: Mapping[str, Any],
    on_progress: OnProgress = lambda what, done, total: None,
    *,
    has_shard: bool = False,
) -> Engine | None:
    """Return the engine that the options name; None for this process.

    Args:
        given: The options by name.
        on_progress: Gets the progress in shards.
        has_shard: Whether the command names one shard.

    Raises:
        RequestError: There is no such engine, or a shard is also named.
    """
    from trajkit.engines.engine import engine_named

    engine = engine_named(given["on"], given["workers"], on_progress=on_progress)
    if engine is not None and has_shard:
        raise RequestError("--shard runs one shard, and --on all of them: leave one out")
    return engine
