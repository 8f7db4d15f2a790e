"""Settings typed on a command line, as the arguments that a function or a class takes."""

from __future__ import annotations

import difflib
import enum
import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from trajkit.errors import RequestError

_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Recorded(str):
    """A setting that was read from data: unlike one that the user typed, it names no function and no file."""


class _Unfit(Exception):
    """The text is no value of this type; the message says what it should be."""


def parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What can be given by name, with `**` under its own name when it takes any; annotations are resolved.

    A builtin without a signature takes nothing.
    """
    try:
        found = inspect.signature(call, eval_str=True)
    except Exception:  # noqa: BLE001 - somebody's annotations are code, and may name what is not there
        try:
            found = inspect.signature(call)
        except ValueError:
            return {}
    kinds = (*_BY_KEYWORD, inspect.Parameter.VAR_KEYWORD)
    return {name: parameter for name, parameter in found.parameters.items() if parameter.kind in kinds}


def converted(
    settings: Mapping[str, str],
    known: Mapping[str, inspect.Parameter],
    *,
    of: str,
    option: str = "--env-set",
) -> dict[str, Any]:
    """The settings as values of the parameters' types.

    `int`, `float`, `bool`, `str`, `Path`, `Literal`, enums (by name or value), functions (`module:name`) and
    tuples or lists of text (with commas) are read as typed; anything else is JSON. Without an annotation the
    default's type decides; without either, JSON is tried, and other text is itself.

    Args:
        settings: Raw texts by name.
        known: From `parameters`.
        of: What takes them, for messages.
        option: The option that they were typed with, for hints.

    Raises:
        RequestError: A name is not known, a value does not fit, or one that is needed is missing.
    """
    takes_any = any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    named = {name: parameter for name, parameter in known.items() if parameter.kind in _BY_KEYWORD}
    values = {}
    for name, text in settings.items():
        if name not in named and not takes_any:
            raise _unknown(name, named, of)
        values[name] = _value(name, text, named.get(name), of)
    for name, parameter in named.items():
        if name not in values and parameter.default is inspect.Parameter.empty:
            raise RequestError(
                f"{of} needs the setting {name!r}", hint=f"{option} {name}={_wanted(parameter).upper()}"
            )
    return values


def nearest(name: str, known: Sequence[str]) -> str:
    """The names that `name` may have meant, else every one, for a hint; empty without any."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known)}" if known else ""


def _unknown(name: str, named: Mapping[str, inspect.Parameter], of: str) -> RequestError:
    if not named:
        return RequestError(f"{of} takes no settings, so not {name!r} either")
    described = ", ".join(f"{known} ({_wanted(parameter)})" for known, parameter in named.items())
    close = difflib.get_close_matches(name, named, n=3, cutoff=0.6)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return RequestError(f"{of} takes no setting {name!r}", hint=f"{meant}it takes {described}")


def _value(name: str, text: str, parameter: inspect.Parameter | None, of: str) -> Any:
    annotation = _annotation(parameter) if parameter else Any
    try:
        return _read(text, annotation)
    except _Unfit as unfit:
        raise RequestError(f"{of}: the setting {name}={text!r} is not {unfit}") from unfit


def _annotation(parameter: inspect.Parameter) -> Any:
    """Its type: annotated, else that of a default that tells; Any when nothing does."""
    if parameter.annotation is not inspect.Parameter.empty and not isinstance(parameter.annotation, str):
        return parameter.annotation
    if isinstance(parameter.default, bool | int | float | str | Path | enum.Enum):
        return type(parameter.default)
    return Any


def _wanted(parameter: inspect.Parameter) -> str:
    """What a parameter takes, in a word or two."""
    annotation = _annotation(parameter)
    if get_origin(annotation) is Literal:
        return "|".join(str(option) for option in get_args(annotation))
    if annotation is Any:
        return "value"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _read(text: str, annotation: Any) -> Any:
    """The value of this type that the text says.

    Raises:
        _Unfit: There is none.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    is_function = origin is Callable or annotation is Callable
    if isinstance(text, Recorded) and (is_function or annotation is Path):
        raise _Unfit("typed with --env-set, as the name of a function or a file must be")
    if origin is Annotated:
        return _read(text, arguments[0])
    if origin is Literal:
        return _option(text, {str(option): option for option in arguments})
    if origin in (Union, types.UnionType):
        return _first_that_fits(text, arguments)
    if is_function:
        return _function(text)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        by_value = {str(member.value): member for member in annotation}
        return _option(text, by_value | annotation.__members__)
    if annotation in _SCALARS:
        return _SCALARS[annotation](text)
    if arguments in ((str,), (str, ...)) and not text.lstrip().startswith("["):
        parts = [part.strip() for part in text.split(",")]
        return tuple(parts) if origin is tuple else parts
    return _json(text, annotation)


def _option(text: str, options: Mapping[str, Any]) -> Any:
    if text not in options:
        raise _Unfit(f"one of {', '.join(options)}")
    return options[text]


def _first_that_fits(text: str, members: tuple[Any, ...]) -> Any:
    """Text comes last: it fits always."""
    unfit = []
    if type(None) in members and text.lower() in ("none", "null"):
        return None
    for member in sorted(members, key=lambda one: one is str):
        if member is not type(None):
            try:
                return _read(text, member)
            except _Unfit as error:
                unfit.append(str(error))
    raise _Unfit(" or ".join(unfit))


def _function(text: str) -> Any:
    from trajkit.environments.module import attribute

    found = attribute(text, noun="function")
    if not callable(found):
        raise _Unfit("a function")
    return found


def _json(text: str, annotation: Any) -> Any:
    """JSON of the annotated type; of any type it may also be plain text."""
    if annotation is Any:
        try:
            return json.loads(text)
        except ValueError:
            return text
    from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

    try:
        return TypeAdapter(annotation).validate_json(text)
    except ValidationError as error:
        raise _Unfit(f"JSON of the type {annotation}: {error.errors()[0]['msg']}") from error
    except PydanticSchemaGenerationError as error:
        raise _Unfit(f"something that can be typed: a {annotation}") from error


def _number(kind: type[int] | type[float], noun: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise _Unfit(noun) from None

    return read


def _boolean(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise _Unfit("true or false")
    return text.lower() in _YES


_SCALARS: dict[Any, Callable[[str], Any]] = {
    str: str,
    Path: Path,
    bool: _boolean,
    int: _number(int, "a whole number"),
    float: _number(float, "a number"),
}
