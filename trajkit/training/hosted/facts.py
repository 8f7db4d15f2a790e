"""What services that are spoken to over REST have in common beside that."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import ValidationError

from trajkit.errors import RequestError
from trajkit.formats.validation.prices import load_prices
from trajkit.schema import Model
from trajkit.training.hosted.service import Event, ModelFacts


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


def wrong_recipe(error: ValidationError, kind: type[Model]) -> RequestError:
    """What is wrong with a recipe, in a line."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return RequestError(
        f"{where}: {message}" if where else message,
        hint=f"the recipe has {', '.join(kind.model_fields)}",
    )
