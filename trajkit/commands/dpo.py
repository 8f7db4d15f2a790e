"""Tune a model on pairs of a better and a worse answer: direct preference optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Unpack

from trajkit.commands.options.group import flattened
from trajkit.commands.options.training import (
    FireworksOptions,
    FireworksRecipe,
    HostedOptions,
    OpenAIOptions,
    OpenAIRecipe,
    PairOptions,
    PreferenceOptions,
    TogetherRecipe,
    TrainingOptions,
    ValidationOptions,
)
from trajkit.commands.options.types import Many, Option, Place
from trajkit.commands.training.hosted import train_at
from trajkit.commands.training.local import train_here
from trajkit.training.local.preferences.recipe import DpoRecipe
from trajkit.training.local.recipe import LoraRecipe

if TYPE_CHECKING:
    from trajkit.training.job import TuneJob


class Local(PairOptions, ValidationOptions, PreferenceOptions, TrainingOptions, total=False):
    """Options of `dpo_local`."""

    loss_type: Annotated[Many, Option(is_repeated=True, metavar="NAME")]
    """The loss: sigmoid, ipo, hinge, robust, apo_zero …; several make a weighted sum."""
    label_smoothing: float | None
    """Share of pairs with swapped labels, for robust and exo_pair."""


@flattened(DpoRecipe, LoraRecipe)
def dpo_local(
    *, model: Annotated[Place | None, Option(metavar="DIR|ID")] = None, **options: Unpack[Local]
) -> TuneJob:
    """Tune a model on this machine: the better answer of each pair becomes more probable than the worse one.

    The pairs are those of `trajkit pairs`. Both answers are scored relative to the initial model. The
    prompt is not learned, the end of an answer is, and nothing is cut off or dropped. The plan is printed
    first. Ctrl-C stops the waiting, not the training, which runs in its own process. With --set a recipe also
    has loss_weights=[1,0.2], ld_alpha=0.5 and use_weighting=true.

    Args:
        model: Model to start from: a folder, an id, a job with --merge, or `sample:tiny-base`. Default:
            that of --config.

    Raises:
        RequestError: A value is invalid, or there are no pairs.
        DataError: The sides leak, or a pair is too long.

    Example:
        trajkit pairs --margin 0.1
        trajkit dpo local --model Qwen/Qwen3-0.6B
    """
    return train_here("dpo", model, options)


class OpenAI(PairOptions, ValidationOptions, OpenAIOptions, TrainingOptions, total=False):
    """Options of `dpo_openai`."""

    beta: Annotated[str | float | None, Option(metavar="X|auto")]
    """The higher, the closer the model stays to the one it starts from. Default: auto."""


@flattened()
def dpo_openai(**options: Unpack[OpenAI]) -> TuneJob:
    """Tune a model on pairs at OpenAI, or at another service with its fine-tuning API.

    The pairs are those of `trajkit pairs`; of a pair with several turns, the first answers that differ are
    learned. The plan is printed first, and nothing is sent before you agree. Keys, addresses and jobs work as
    in `trajkit sft openai`.

    Raises:
        RequestError: The job costs money and was not confirmed, or a value is invalid.
        DataError: The sides leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    return train_at("dpo", "openai", options, (*OpenAIRecipe.__annotations__, "beta"))


class Together(PairOptions, ValidationOptions, HostedOptions, TogetherRecipe, TrainingOptions, total=False):
    """Options of `dpo_together`."""

    dpo_beta: float | None
    """The higher, the closer the model stays to the one it starts from. Default: the service's own."""


@flattened()
def dpo_together(**options: Unpack[Together]) -> TuneJob:
    """Tune a model on pairs at Together.

    The pairs are those of `trajkit pairs`; of a pair with several turns, the first answers that differ are
    learned. The plan is printed first, and nothing is sent before you agree. Keys and jobs work as in
    `trajkit sft together`.

    Raises:
        RequestError: The job costs money and was not confirmed, or a value is invalid.
        DataError: The sides leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    return train_at("dpo", "together", options, (*TogetherRecipe.__annotations__, "dpo_beta"))


class Fireworks(PairOptions, FireworksOptions, TrainingOptions, total=False):
    """Options of `dpo_fireworks`."""

    beta: float | None
    """The higher, the closer the model stays to the one it starts from. Default: the service's own."""


@flattened()
def dpo_fireworks(**options: Unpack[Fireworks]) -> TuneJob:
    """Tune a model on pairs at Fireworks.

    The pairs are those of `trajkit pairs`, all of them: Fireworks does not validate on pairs. Of a pair with
    several turns, the first answers that differ are learned. The plan is printed first, and nothing is sent
    before you agree. Keys and jobs work as in `trajkit sft fireworks`.

    Raises:
        RequestError: The job costs money and was not confirmed, or a value is invalid.
        DataError: The sides leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    return train_at("dpo", "fireworks", options, (*FireworksRecipe.__annotations__, "beta"))
