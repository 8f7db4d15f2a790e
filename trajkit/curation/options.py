"""Validate the options of a command against a model, with a `RequestError` for wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from trajkit.errors import RequestError
from trajkit.schema.base import Model

M = TypeVar("M", bound=Model)


def validated(model: type[M], values: Mapping[str, Any], *, of: str) -> M:
    """Return validated options.

    Args:
        model: Their model.
        values: Values by name; a missing option has its default.
        of: Name of the command.

    Raises:
        RequestError: An option is unknown, or its value is invalid.
    """
    if unknown := [name for name in values if name not in model.model_fields]:
        known = ", ".join(model.model_fields)
        raise RequestError(f"{of} has no option {unknown[0]!r}", hint=f"options: {known}")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        raise RequestError(f"{where} {first['input']!r}: {text}" if where else text) from error
