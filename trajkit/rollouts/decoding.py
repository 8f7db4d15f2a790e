"""Sampling parameters that a run fixes, and the settings of trajkit's own policies, as they are typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError

from trajkit._core.secrets import HIDDEN, names_a_secret
from trajkit.errors import RequestError
from trajkit.schema import Model

GREEDY, CONFIG = "greedy", "config"
_EXAMPLES = "greedy, config (the variant's own settings), temperature=1, or temperature=0.7,top_p=0.9"

_Settings = TypeVar("_Settings", bound=Model)


class Decoding(Model):
    """Sampling parameters. None leaves a parameter to the policy: a variant's configuration, or a server."""

    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    """Sampling temperature; 0 takes the most likely token."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Draw only from the likeliest tokens with this total probability."""

    @property
    def parameters(self) -> dict[str, float]:
        """The fixed parameters, by OpenAI's names."""
        return self.model_dump(exclude_none=True)

    def __str__(self) -> str:
        """Return the decoding as it is typed."""
        if self.temperature == 0 and self.top_p is None:
            return GREEDY
        return ",".join(f"{name}={value:g}" for name, value in self.parameters.items()) or CONFIG


def as_decoding(value: object) -> Decoding:
    """Parse a decoding.

    Raises:
        RequestError: The text is not a decoding.
    """
    if isinstance(value, Decoding):
        return value
    text = str(value)
    if text in (GREEDY, CONFIG):
        return Decoding(temperature=0) if text == GREEDY else Decoding()
    pairs = [piece.partition("=") for piece in text.split(",")]
    names = [name.strip() for name, _, _ in pairs]
    if len(set(names)) < len(names) or not all(mark for _, mark, _ in pairs):
        raise RequestError(f"{text!r} is not a decoding", hint=_EXAMPLES)
    try:
        return Decoding.model_validate({name.strip(): value.strip() for name, _, value in pairs})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RequestError(
            f"{text!r} is not a decoding: {first['loc'][0]}: {first['msg']}", hint=_EXAMPLES
        ) from error


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
