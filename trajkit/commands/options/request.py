"""Frozen models of what a command does, from its options and from `--set`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from trajkit._core.outside import problem_of
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.schema import Model

Checked = TypeVar("Checked", bound="Model")


def picked(options: Mapping[str, object], names: Iterable[str]) -> dict[str, Any]:
    """The options of these names that were given."""
    return {name: options[name] for name in names if options.get(name) not in (None, ())}


def given_fields(options: Mapping[str, object], model: type[Model]) -> dict[str, Any]:
    """The options that are fields of a model and differ from their defaults there."""
    fields = model.model_fields
    return {name: value for name, value in picked(options, fields).items() if value != fields[name].default}


def nested(settings: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Apply `--set` on top of other options: `a.b=c` sets the field b of a.

    Args:
        settings: Paths to values.
        given: Fields from other options; not modified.

    Raises:
        RequestError: A path leads through something that has no fields.
    """
    found = copy.deepcopy(dict(given))
    for path, value in (settings or {}).items():
        *groups, last = path.split(".")
        place: Any = found
        for n_names, name in enumerate(groups, start=1):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise RequestError(
                    f"--set {path}: {'.'.join(groups[:n_names])} is not a group", hint="such as lora.r=8"
                )
        place[last] = value
    return found


def checked(kind: type[Checked], fields: Mapping[str, Any], *, hint: str | None = None) -> Checked:
    """A model of these fields.

    Raises:
        RequestError: There is no such field, or its value is invalid, such as nan.
    """
    from pydantic import ValidationError

    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise RequestError(problem_of(error), hint=hint) from error


def recipe(kind: type[Checked], fields: Mapping[str, Any]) -> Checked:
    """The recipe of these fields.

    Raises:
        RequestError: There is no such field, or its value is invalid.
    """
    return checked(kind, fields, hint=f"the recipe has {', '.join(kind.model_fields)}")
