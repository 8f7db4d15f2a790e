"""How a model is tuned over OpenAI's fine-tuning API. Names are the API's own."""

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
    """Everything that decides what comes out, but for the data and the model."""

    n_epochs: Annotated[int, Field(ge=1, le=50)] | Auto = "auto"
    """Passes over the rows."""
    batch_size: Annotated[int, Field(ge=1, le=256)] | Auto = "auto"
    """Rows in a batch."""
    learning_rate_multiplier: Annotated[float, Field(gt=0)] | Auto = "auto"
    """Times the service's own learning rate."""
    beta: Annotated[float, Field(gt=0, le=2)] | Auto | None = None
    """Of direct preference optimization alone: how closely the model keeps to what it was."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Of the job; None lets the service draw one, which is written down."""
    suffix: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """In the name of the tuned model."""
    hyperparameters: JsonObject = {}
    """A service's own, beside those above."""
    extra_body: dict[str, Json] = {}
    """Whatever else a service takes, at the top of the request."""


def read_recipe(given: JsonObject, *, method: str, rules: str) -> OpenAIRecipe:
    """The recipe that is meant.

    Args:
        given: By name; one that is not a field goes to the top of the request.
        method: `sft` or `dpo`.
        rules: Whose rules the suffix follows.

    Raises:
        RequestError: A value cannot be, or a name is decided by the job itself.
    """
    for name in _OURS:
        if name in given:
            raise RequestError(f"{name} is not an option of a recipe", hint="the job says it")
    if "beta" in given and method != "dpo":
        raise RequestError(
            "beta is of direct preference optimization", hint="leave it out, or train with dpo"
        )
    known = {name: value for name, value in given.items() if name in OpenAIRecipe.model_fields}
    more = {name: value for name, value in given.items() if name not in known}
    extra = known.pop("extra_body", {})
    if not isinstance(extra, dict):
        raise RequestError("extra_body is an object", hint="such as --set trainingType=Standard")
    try:
        recipe = OpenAIRecipe.model_validate({**known, "extra_body": {**extra, **more}})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:1])
        raise RequestError(
            f"{where}={given.get(where)!r}: {first['msg'].removeprefix('Value error, ')}",
            hint=f"the service's own: {', '.join(OpenAIRecipe.model_fields)}; anything else is sent as it is",
        ) from error
    if recipe.suffix is not None and "." in recipe.suffix and not TARGETS[rules].suffix_has_dots:
        raise RequestError(f"suffix={recipe.suffix!r} has a dot, and {rules} takes none")
    return recipe


def arguments_of(recipe: OpenAIRecipe, *, method: str, has_method: bool) -> dict[str, Any]:
    """What of a recipe stands in the request.

    Args:
        recipe: The recipe.
        method: `sft` or `dpo`.
        has_method: Whether the service has `method`; else hyperparameters stand at the top.
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
    """The passes that OpenAI's guide expects of its service where none are asked for."""
    if n_rows * 3 < 100:
        return min(25, max(1, 100 // max(1, n_rows)))
    return max(1, 25_000 // n_rows) if n_rows * 3 > 25_000 else 3
