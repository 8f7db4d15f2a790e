"""What a training is asked for: its recipe from options, and the request of each kind of training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from trajkit._core.settings import project
from trajkit.commands.place import last_store
from trajkit.commands.sides import last_pairs
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.commands.sides import Sides
    from trajkit.schema import Model
    from trajkit.training.local.preference_prepare import PreferenceRequest
    from trajkit.training.local.prepare import LocalRequest

Recipe = TypeVar("Recipe", bound="Model")

_LORA = ("r", "lora_alpha", "lora_dropout")
_RECIPE = (
    "num_train_epochs",
    "max_steps",
    "learning_rate",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_length",
    "seed",
    "auto_batch",
    "merge",
    "report_to",
)
_ROWS = ("unit", "thoughts", "overlong", "tokenizer", "chat_template", "allow_leak")


def as_it_is(value: Any) -> Any:
    """A value that needs no reading."""
    return value


def nested(
    settings: Mapping[str, Any], given: Mapping[str, Any] | None = None, *, read: Callable[[Any], Any]
) -> dict[str, Any]:
    """What `--set` says, put over what other options gave: `a.b=c` is the field b of a.

    Args:
        settings: Paths to values.
        given: Fields that are there already; it is left as it is.
        read: Makes a field of a value.

    Raises:
        RequestError: A path leads through something that has no fields.
    """
    found = copy.deepcopy(dict(given or {}))
    for path, value in settings.items():
        *groups, last = path.split(".")
        place: Any = found
        for n_names, name in enumerate(groups, start=1):
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise RequestError(
                    f"--set {path}: {'.'.join(groups[:n_names])} is no group", hint="such as lora.r=8"
                )
        place[last] = read(value)
    return found


def recipe(
    kind: type[Recipe],
    given: Mapping[str, Any],
    more: Mapping[str, Any],
    *,
    read: Callable[[Any], Any] = as_it_is,
) -> Recipe:
    """What the options say, and over it what --set says.

    Args:
        kind: The recipe's model.
        given: Its fields that options gave.
        more: Of --set: paths such as `lora.r` to values.
        read: Makes a field of such a value.

    Raises:
        RequestError: There is no such field, or its value cannot be.
    """
    from pydantic import ValidationError

    try:
        return kind.model_validate(nested(more, given, read=read))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        said = f"{where}: {message}" if where else message
        raise RequestError(said, hint=f"the recipe has {', '.join(kind.model_fields)}") from error


def given_recipe(asked: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The fields of a recipe for this machine that were given.

    Args:
        asked: The options.
        more: Names of options beside those that every method has.
    """
    names = [name for name in (*_RECIPE, *more) if asked.get(name) is not None]
    given: dict[str, Any] = {name: asked[name] for name in names}
    given["lora"] = {name: asked[name] for name in _LORA if asked[name] is not None}
    return given


def local_request(
    asked: Mapping[str, Any], sides: Callable[[], Sides], *, read: Callable[[Any], Any] = as_it_is
) -> LocalRequest:
    """What `sft local` is asked for.

    Args:
        asked: Its options; the model is `base`, and what `--set` says is `more`.
        sides: Gives what is learned, and what measures; called when the rest is known to be right.
        read: Makes a field of what `--set` says.

    Raises:
        RequestError: A value cannot be, options do not go together, or there is no such model.
    """
    from trajkit.training.local.base_model import check_model
    from trajkit.training.local.prepare import LocalRequest
    from trajkit.training.local.recipe import LocalRecipe

    wanted = recipe(LocalRecipe, given_recipe(asked, "packing") | _play(asked), asked["more"], read=read)
    if asked["train"] is None:
        last_store()  # that there is nothing to learn is said before a model is looked for
    check_model(asked["base"])
    chosen = sides()
    return LocalRequest(
        base=asked["base"],
        train=chosen.train,
        validation=chosen.validation,
        recipe=wanted,
        **{name: asked[name] for name in _ROWS},
    )


def _play(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of the episodes that choose the checkpoint; empty where none are played."""
    if asked["best_by"] == "eval_loss":
        if asked["best_seeds"] is not None:
            raise RequestError("--best-seeds is for --best-by episode_return")
        return {}
    if asked["best_seeds"] is None:
        raise RequestError(
            "--best-by episode_return needs --best-seeds: some of the reserved ones, kept apart from those"
            " of a report",
            hint="trajkit reserve babyai --seeds 300:320, then --best-seeds 300:320",
        )
    config = project().config
    return {"play": {"seeds": asked["best_seeds"], **({"config": config} if config else {})}}


def preference_request(
    method: str,
    asked: Mapping[str, Any],
    sides: Callable[[], Sides],
    names: tuple[str, ...],
    *,
    read: Callable[[Any], Any] = as_it_is,
) -> PreferenceRequest:
    """What `dpo local` or `kto local` is asked for.

    Args:
        method: `dpo` or `kto`.
        asked: Its options; the model is `base`, and what `--set` says is `more`.
        sides: Gives what is learned, and what measures; called when the rest is known to be right.
        names: Options that are the method's own fields of the recipe.
        read: Makes a field of what `--set` says.

    Raises:
        RequestError: A value cannot be, or there is no such model.
    """
    from trajkit.training.local.base_model import check_model
    from trajkit.training.local.preference_prepare import PreferenceRequest
    from trajkit.training.local.preference_recipe import RECIPES

    wanted = recipe(RECIPES[method], given_recipe(asked, *names), asked["more"], read=read)
    if asked["train"] is None:
        last_pairs(method)
    check_model(asked["base"])
    chosen = sides()
    return PreferenceRequest(
        method=method,
        base=asked["base"],
        train=chosen.train,
        validation=chosen.validation,
        recipe=wanted,
        good=asked.get("good"),
        tokenizer=asked["tokenizer"],
        chat_template=asked["chat_template"],
        thoughts=asked["thoughts"],
        allow_leak=asked["allow_leak"],
    )
