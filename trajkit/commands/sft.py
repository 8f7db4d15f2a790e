"""Tune a model on the steps of a store: supervised fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from trajkit._core.settings import project
from trajkit.commands.options.group import flattened
from trajkit.commands.options.training import (
    FireworksOptions,
    FireworksRecipe,
    HostedOptions,
    LengthOptions,
    LocalOptions,
    OpenAIOptions,
    OpenAIRecipe,
    StoreOptions,
    TogetherRecipe,
    TrainingOptions,
    ValidationOptions,
)
from trajkit.commands.options.types import Option, Place
from trajkit.commands.training.hosted import train_at
from trajkit.commands.training.local import train_here
from trajkit.errors import RequestError
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe

if TYPE_CHECKING:
    from trajkit.training.job import TuneJob


class Local(StoreOptions, ValidationOptions, LengthOptions, LocalOptions, TrainingOptions, total=False):
    """Options of `sft_local`."""

    packing: bool
    """Pack several rows into one sequence, and compute common prefixes once; rows stay separate."""
    best_by: Annotated[Literal["eval_loss", "episode_return"], Option(default="eval_loss")]
    """Choose the checkpoint by the validation loss, or by how the model plays."""
    best_seeds: Annotated[str | None, Option(metavar="SEEDS")]
    """Seeds to play when choosing a checkpoint, of those that `trajkit reserve` keeps."""


@flattened(LocalRecipe, LoraRecipe)
def sft_local(
    *, model: Annotated[Place | None, Option(metavar="DIR|ID")] = None, **options: Unpack[Local]
) -> TuneJob:
    """Tune a model on this machine: LoRA with transformers and peft.

    Each answer's loss counts by its weight in the store; nothing else of a row is learned, and nothing is cut
    off. The plan is printed first. Ctrl-C stops the waiting, not the training, which runs in its own process.
    The same data, model and recipe are never trained twice: the existing job is shown.

    Args:
        model: Model to start from: a folder, an id, a job, or `sample:tiny-base`. Default:
            that of --config.

    Raises:
        RequestError: A value is invalid.
        DataError: The stores leak, or a row is too long.
        NothingMatched: No step is learned.
    """
    return train_here("sft", model, options, _play(options["best_by"], options["best_seeds"]))


def _play(best_by: str, seeds: str | None) -> dict[str, Any]:
    """The recipe of the episodes that choose the checkpoint; empty if none are played."""
    if best_by == "eval_loss":
        if seeds is not None:
            raise RequestError("--best-seeds is for --best-by episode_return")
        return {}
    if seeds is None:
        raise RequestError(
            "--best-by episode_return needs --best-seeds: some of the reserved ones, kept apart from those"
            " of a report",
            hint="trajkit reserve babyai --seeds 300:320, then --best-seeds 300:320",
        )
    config = project().config
    return {"play": {"seeds": seeds, **({"config": config} if config else {})}}


class HostedData(StoreOptions, ValidationOptions, total=False):
    """Data of a job at a service."""

    train_function: Annotated[str | None, Option(metavar="NAME")]
    """Function whose steps are learned; needed if the store has steps of several functions."""


class OpenAI(HostedData, OpenAIOptions, TrainingOptions, total=False):
    """Options of `sft_openai`."""


@flattened()
def sft_openai(**options: Unpack[OpenAI]) -> TuneJob:
    """Tune a model at OpenAI, or with its fine-tuning API at Azure, Nebius, Bedrock or any URL.

    By default it takes the last store and the usual model, sets a tenth of the worlds aside to validate, and
    shows a plan; nothing is sent before you agree. The key comes from the environment: OPENAI_API_KEY, or
    AZURE_OPENAI_API_KEY, NEBIUS_API_KEY, AWS_BEARER_TOKEN_BEDROCK. Ctrl-C stops the waiting, not the job. The
    same data, model and recipe are never paid for twice: the existing job is found, here or at the service.

    Raises:
        RequestError: The job costs money and was not confirmed, or a value is invalid.
        DataError: The stores leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    return train_at("sft", "openai", options, OpenAIRecipe.__annotations__)


class SftTogetherRecipe(TogetherRecipe, total=False):
    """Hyperparameters of supervised fine-tuning at Together."""

    n_evals: int | None
    """Validations during training. Default: one per epoch, if there is validation data."""
    lora: bool | None
    """Train an adapter, or every weight. Default: an adapter."""
    lora_alpha: int | None
    """The adapter is scaled by alpha / r. Default: twice --lora-r."""
    lora_dropout: float | None
    """Dropout rate of the adapter's inputs. Default: 0."""


class Together(HostedData, HostedOptions, SftTogetherRecipe, TrainingOptions, total=False):
    """Options of `sft_together`."""


@flattened()
def sft_together(**options: Unpack[Together]) -> TuneJob:
    """Tune a model at Together.

    It takes the last store, sets a tenth of the worlds aside to validate, and shows a plan; nothing is sent
    before you agree. The key comes from TOGETHER_API_KEY. Ctrl-C stops the waiting, not the job. The same
    data, model and recipe are never paid for twice: the existing job is found, here or at Together.

    Raises:
        RequestError: The job costs money and was not confirmed, or a value is invalid.
        DataError: The stores leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    return train_at("sft", "together", options, SftTogetherRecipe.__annotations__)


class SftFireworksRecipe(FireworksRecipe, total=False):
    """Hyperparameters of supervised fine-tuning at Fireworks."""

    max_context_length: int | None
    """Maximum tokens of a row that training reads. Default: the service's own."""
    batch_size_samples: int | None
    """Rows in a batch. Default: the service's own."""


class Fireworks(HostedData, FireworksOptions, SftFireworksRecipe, TrainingOptions, total=False):
    """Options of `sft_fireworks`."""


@flattened()
def sft_fireworks(**options: Unpack[Fireworks]) -> TuneJob:
    """Tune a model at Fireworks.

    It takes the last store, sets a tenth of the worlds aside to validate, and shows a plan; nothing is sent
    before you agree. The key comes from FIREWORKS_API_KEY. Weights of rows are applied exactly, whatever
    their value: with --unit step the weight of a row is that of its step. Ctrl-C stops the waiting, not the
    job. The same data, model and recipe are never paid for twice: the existing job is found, here or at
    Fireworks.

    Raises:
        RequestError: The job costs money and was not confirmed, or a value is invalid.
        DataError: The stores leak, or the service would refuse a row.
        ServiceError: The service refused, or cannot be reached.
    """
    return train_at("sft", "fireworks", options, SftFireworksRecipe.__annotations__)
