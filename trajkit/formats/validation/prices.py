"""What tuning a model costs and when the model ends: one dated file, which the user's own may go over."""

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
    """A model of a service, and what tuning it means."""

    name: Name
    """What the service calls it."""
    aliases: tuple[Name, ...] = ()
    """Other names of the same."""
    encoding: Name | None = None
    """Name of its tokenizer in tiktoken; None when that is not public."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """Price of a million trained tokens; None when it is not known."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Longest row; what is beyond is cut off. None when nothing is said."""
    last_job_on: date | None = None
    """Last day on which a job can be created; None when nothing is said."""
    shutdown_on: date | None = None
    """Day on which the model and all that was tuned from it end; None when nothing is said."""
    sources: tuple[Name, ...] = ()
    """Where this is from: keys of `Prices.sources`."""


class Prices(Model):
    """A file of models."""

    as_of: date
    """When it was true."""
    sources: Mapping[Name, Text] = {}
    """What the models' `sources` mean."""
    models: tuple[TunableModel, ...] = ()
    """The models."""

    def find(self, name: str) -> TunableModel | None:
        """The model of this name, an alias of it, or one that was tuned from it; None for an unknown one."""
        # `ft:gpt-4.1-mini-2025-04-14:my-org::id`: what was tuned costs and counts like what it was tuned from
        base = name.removeprefix(_TUNED).partition(":")[0] if name.startswith(_TUNED) else name
        for model in self.models:
            if base == model.name or base in model.aliases:
                return model
        return None


def load_prices(path: Path | None = None) -> Prices:
    """The models that trajkit knows, and over them those of the user's file.

    Args:
        path: A YAML file of the shape of `Prices`; None for none.

    Raises:
        RequestError: The file cannot be read, or is of another shape.
    """
    text = resources.files("trajkit.formats.validation").joinpath("models.yaml").read_text(encoding="utf-8")
    known = Prices.model_validate(yaml_from_outside(text, where="models.yaml"))
    if path is None:
        return known
    said = text_from_outside(path, error=RequestError)
    try:
        own = Prices.model_validate(yaml_from_outside(said, where=str(path), error=RequestError))
    except ValidationError as error:
        hint = "as_of, and models with name and prices"
        raise RequestError(f"{path}: {problem_of(error)}", hint=hint) from error
    return Prices(
        as_of=own.as_of, sources={**known.sources, **own.sources}, models=(*own.models, *known.models)
    )
