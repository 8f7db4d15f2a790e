"""Prices of tuning and end dates of models: one dated file, which a file of the user can override."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from importlib import resources
from pathlib import Path

from pydantic import Field, ValidationError

from trajkit._core.outside import problem_of, text_from_outside, yaml_from_outside
from trajkit.errors import RequestError
from trajkit.schema import Model
from trajkit.schema.base import Name, Text

_TUNED = "ft:"


class TunableModel(Model):
    """A model of a service, with price and dates of tuning."""

    name: Name
    """Its name at the service."""
    aliases: tuple[Name, ...] = ()
    """Other names of the same model."""
    encoding: Name | None = None
    """Name of its tokenizer in tiktoken; None if it is not public."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """Price of a million trained tokens; None if unknown."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Longest row; further tokens are cut off. None if unknown."""
    last_job_on: date | None = None
    """Last day on which a job can be created; None if unknown."""
    shutdown_on: date | None = None
    """Day on which the model and those tuned from it end; None if unknown."""
    sources: tuple[Name, ...] = ()
    """Sources: keys of `Prices.sources`."""


class Prices(Model):
    """A file of models."""

    as_of: date
    """Date of the facts."""
    sources: Mapping[Name, Text] = {}
    """The sources that models refer to."""
    models: tuple[TunableModel, ...] = ()
    """The models."""

    def find(self, name: str) -> TunableModel | None:
        """Return the model with this name or alias, or the base of a tuned model; None if unknown."""
        # `ft:gpt-4.1-mini-2025-04-14:my-org::id`: a tuned model has price and tokenizer of its base
        base = name.removeprefix(_TUNED).partition(":")[0] if name.startswith(_TUNED) else name
        for model in self.models:
            if base == model.name or base in model.aliases:
                return model
        return None


def load_prices(path: Path | None = None) -> Prices:
    """Return the models that trajkit knows, and before them those of the user's file.

    Args:
        path: A YAML file of the shape of `Prices`; None without one.

    Raises:
        RequestError: The file cannot be read, or has another shape.
    """
    text = resources.files("trajkit.formats.validation").joinpath("models.yaml").read_text(encoding="utf-8")
    known = Prices.model_validate(yaml_from_outside(text, where="models.yaml"))
    if path is None:
        return known
    own_text = text_from_outside(path, error=RequestError)
    try:
        own = Prices.model_validate(yaml_from_outside(own_text, where=str(path), error=RequestError))
    except ValidationError as error:
        hint = "as_of, and models with name and prices"
        raise RequestError(f"{path}: {problem_of(error)}", hint=hint) from error
    return Prices(
        as_of=own.as_of, sources={**known.sources, **own.sources}, models=(*own.models, *known.models)
    )
