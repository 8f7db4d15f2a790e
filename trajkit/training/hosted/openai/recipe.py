"""Settings of tuning over OpenAI's fine-tuning API, named as in the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from trajkit.errors import RequestError
from trajkit.formats.validation.target import TARGETS
from trajkit.schema import Model
from trajkit.schema.base import Json, JsonObject

Auto = Literal["auto"]

_OURS = ("model", "training_file", "validation_file", "metadata", "method")
_ALWAYS_HEARD = ("n_epochs", "batch_size", "learning_rate_multiplier")


class OpenAIRecipe(Model):
    """All settings that affect the result, except for the data and the model."""

    n_epochs: Annotated[int, Field(ge=1, le=50)] | Auto = "auto"
    """Passes over the rows."""
    batch_size: Annotated[int, Field(ge=1, le=256)] | Auto = "auto"
    """Rows in a batch."""
    learning_rate_multiplier: Annotated[float, Field(gt=0)] | Auto = "auto"
    """Factor on the service's own learning rate."""
    beta: Annotated[float, Field(gt=0, le=2)] | Auto | None = None
    """Preferences only: strength of the tie to the base model."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seed of the job; None lets the service choose one, which is recorded."""
    suffix: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Part of the tuned model's name."""
    hyperparameters: JsonObject = {}
    """Further hyperparameters of a service."""
    extra_body: dict[str, Json] = {}
    """Further fields of a service, at the top of the request."""


def read_recipe(given: JsonObject, *, method: str, rules: str) -> OpenAIRecipe:
    """Parse the recipe.

    Args:
        given: Options by name; an unknown one goes to the top of the request.
        method: `sft` or `dpo`.
        rules: Name of the rules for the suffix.

    Raises:
        RequestError: A value is invalid, or the job itself sets the option.
    """
    for name in _OURS:
        if name in given:
            raise RequestError(f"{name} is not an option of a recipe", hint="the job sets it")
    if "beta" in given and method != "dpo":
        raise RequestError("beta is an option of preferences (dpo)", hint="leave it out, or train with dpo")
    known = {name: value for name, value in given.items() if name in OpenAIRecipe.model_fields}
    more = {name: value for name, value in given.items() if name not in known}
    extra = known.pop("extra_body", {})
    if not isinstance(extra, dict):
        raise RequestError("extra_body must be an object", hint="such as --set trainingType=Standard")
    try:
        recipe = OpenAIRecipe.model_validate({**known, "extra_body": {**extra, **more}})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:1])
        raise RequestError(
            f"{where}={given.get(where)!r}: {first['msg'].removeprefix('Value error, ')}",
            hint=f"known options: {', '.join(OpenAIRecipe.model_fields)}; others are sent unchanged",
        ) from error
    if recipe.suffix is not None and "." in recipe.suffix and not TARGETS[rules].suffix_has_dots:
        raise RequestError(f"suffix={recipe.suffix!r} has a dot, which {rules} does not allow")
    return recipe


def arguments_of(recipe: OpenAIRecipe, *, method: str, has_method: bool) -> dict[str, Any]:
    """Return the recipe's part of the request.

    Args:
        recipe: The recipe.
        method: `sft` or `dpo`.
        has_method: Whether the service has `method`; otherwise hyperparameters are at the top.
    """
    chosen: dict[str, Any] = {
        name: value for name in _ALWAYS_HEARD if (value := getattr(recipe, name)) != "auto"
    }
    if method == "dpo" and recipe.beta not in (None, "auto"):
        chosen["beta"] = recipe.beta
    chosen |= recipe.hyperparameters
    name = {"sft": "supervised", "dpo": "dpo"}[method]
    arguments: dict[str, Any] = {}
    if has_method:
        arguments["method"] = {"type": name, name: {"hyperparameters": chosen}}
    elif chosen:
        arguments["hyperparameters"] = chosen
    for field in ("seed", "suffix"):
        if (value := getattr(recipe, field)) is not None:
            arguments[field] = value
    if recipe.extra_body:
        arguments["extra_body"] = recipe.extra_body
    return arguments


def usual_epochs(n_rows: int) -> int:
    """Return the number of epochs that OpenAI's guide gives as its default."""
    if n_rows * 3 < 100:
        return min(25, max(1, 100 // max(1, n_rows)))
    return max(1, 25_000 // n_rows) if n_rows * 3 > 25_000 else 3
