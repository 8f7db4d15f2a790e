"""Parse the settings of trajkit's own policies from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from trajkit._core.secrets import HIDDEN, names_a_secret
from trajkit.errors import RequestError
from trajkit.schema import Model

_Settings = TypeVar("_Settings", bound=Model)


def settings_of(policy: str, kind: type[_Settings], texts: Mapping[str, str]) -> _Settings:
    """Parse the values of `--policy-set` as a policy's own settings.

    Args:
        policy: The policy's name, for messages.
        kind: The model of its settings.
        texts: The settings by their names.

    Raises:
        RequestError: A setting is unknown, or its value is invalid.
    """
    try:
        return kind.model_validate(dict(texts))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if name not in kind.model_fields:
            hint = f"it has {', '.join(kind.model_fields)}"
            raise RequestError(f"the policy {policy} has no setting {name!r}", hint=hint) from error
        shown = HIDDEN if names_a_secret(name) else repr(texts[name])
        raise RequestError(f"the setting {name}={shown}: {first['msg']}") from error
