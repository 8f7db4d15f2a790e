"""Functions that the services share: known models, prices, names and recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import ValidationError

from trajkit._core.outside import problem_of
from trajkit.errors import RequestError
from trajkit.formats.validation.prices import load_prices
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.fireworks.recipe import FireworksRecipe
from trajkit.training.hosted.service import Event, ModelFacts
from trajkit.training.hosted.together.recipe import TogetherRecipe


def known_facts(model: str, *warnings: str) -> ModelFacts:
    """Return the facts about a model from trajkit's dated file, with notes on its service."""
    prices = load_prices()
    found = prices.find(model)
    if found is None:
        return ModelFacts(model=model, warnings=warnings)
    return ModelFacts(
        model=model,
        usd_per_million_tokens=found.usd_per_million_tokens,
        price_as_of=prices.as_of,
        max_tokens=found.max_tokens,
        encoding=found.encoding,
        last_job_on=found.last_job_on,
        shutdown_on=found.shutdown_on,
        warnings=warnings,
    )


def price(amount_usd: object) -> Iterator[Event]:
    """Yield an event with the service's price of a job, once it is known, so that the user can cancel."""
    if isinstance(amount_usd, int | float):
        yield Event(event_id="price", message=f"the service's price of the job: {amount_usd:,.2f} USD")


def slug(text: str) -> str:
    """Convert a text to small letters, digits and hyphens, for ids of services."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "trajkit"


def read_recipe(
    kind: type[TogetherRecipe] | type[FireworksRecipe], method: str, given: JsonObject
) -> JsonObject:
    """Parse the recipe, with trajkit's defaults.

    Raises:
        RequestError: There is no such option, or its value is invalid.
    """
    try:
        return kind.model_validate(given).of(method).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        hint = f"the recipe has {', '.join(kind.model_fields)}"
        raise RequestError(problem_of(error), hint=hint) from error
    except ValueError as error:
        raise RequestError(str(error)) from error
