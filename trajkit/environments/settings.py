"""Convert settings from the command line into arguments of a function or a class."""

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
    """A setting from data. Unlike a typed one, it must not name a function or a file."""


class _Unfit(Exception):
    """The text is not a value of the type; the message says what is expected."""


def parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters that can be given by name, including `**`, with resolved annotations.

    A builtin without a signature has none.
    """
    try:
        found = inspect.signature(call, eval_str=True)
    except Exception:  # noqa: BLE001 - annotations are code of the user and may fail in any way
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
    """Convert settings to the types of the parameters.

    `int`, `float`, `bool`, `str`, `Path`, `Literal`, enums (by name or value), functions (`module:name`) and
    tuples or lists of text (with commas) are read as typed; anything else is JSON. Without an annotation, the
    type of the default decides. Without both, the text is read as JSON if possible, else kept.

    Args:
        settings: Raw texts by name.
        known: From `parameters`.
        of: The owner of the parameters, for messages.
        option: The option on the command line, for hints.

    Raises:
        RequestError: A name is unknown, a value does not fit, or a required one is missing.
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
    """Return similar names, else all names, for a hint."""
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
    """Return the annotated type, else the type of the default, else Any."""
    if parameter.annotation is not inspect.Parameter.empty and not isinstance(parameter.annotation, str):
        return parameter.annotation
    if isinstance(parameter.default, bool | int | float | str | Path | enum.Enum):
        return type(parameter.default)
    return Any


def _wanted(parameter: inspect.Parameter) -> str:
    """Describe the type of a parameter."""
    annotation = _annotation(parameter)
    if get_origin(annotation) is Literal:
        return "|".join(str(option) for option in get_args(annotation))
    if annotation is Any:
        return "value"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _read(text: str, annotation: Any) -> Any:
    """Convert a text to the type.

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
    """Sort text last, because every value fits it."""
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
    """Read JSON of the annotated type; for Any, other text is kept."""
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
