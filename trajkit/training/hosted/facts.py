"""What services have in common beside their transport: known models, prices, names and recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import ValidationError

from trajkit._core.outside import problem_of
from trajkit.errors import RequestError
from trajkit.formats.validation.prices import load_prices
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.fireworks_recipe import FireworksRecipe
from trajkit.training.hosted.service import Event, ModelFacts
from trajkit.training.hosted.together_recipe import TogetherRecipe


def known_facts(model: str, *warnings: str) -> ModelFacts:
    """What the dated file of models says of one, and what a user should know of its service."""
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
    """What a job costs as the service counts it, told once it is known: somebody may want to end it."""
    if isinstance(amount_usd, int | float):
        yield Event(event_id="price", message=f"the job costs {amount_usd:,.2f} USD, says the service")


def slug(text: str) -> str:
    """The text in small letters, digits and hyphens, as services want their ids."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "trajkit"


def read_recipe(
    kind: type[TogetherRecipe] | type[FireworksRecipe], method: str, given: JsonObject
) -> JsonObject:
    """The recipe that is meant, with the defaults that are ours to choose.

    Raises:
        RequestError: There is no such option, or it cannot have this value.
    """
    try:
        return kind.model_validate(given).of(method).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        hint = f"the recipe has {', '.join(kind.model_fields)}"
        raise RequestError(problem_of(error), hint=hint) from error
    except ValueError as error:
        raise RequestError(str(error)) from error
