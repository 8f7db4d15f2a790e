"""Tune a model on answers that are good or bad: Kahneman-Tversky optimisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from trajkit.commands.options.group import flattened
from trajkit.commands.options.training import PreferenceOptions, TrainingOptions, ValidationOptions
from trajkit.commands.options.types import Option, Place, StoreLike
from trajkit.commands.training.local import train_here
from trajkit.training.local.preferences.recipe import KtoRecipe
from trajkit.training.local.recipe import LoraRecipe

if TYPE_CHECKING:
    from trajkit.training.job import TuneJob


class Local(ValidationOptions, PreferenceOptions, TrainingOptions, total=False):
    """Options of `kto_local`."""

    train: Annotated[StoreLike | None, Option(metavar="PAIRS|STORE")]
    """Pairs or store to train on. Default: the last pairs written here, else the last store."""
    good: Annotated[str | None, Option(metavar="SQL")]
    """Episodes of a store whose answers are good. Default: those that succeeded."""
    loss_type: Literal["kto", "apo_zero_unpaired"] | None
    """The loss."""
    desirable_weight: float | None
    """Weight of a good answer."""
    undesirable_weight: float | None
    """Weight of a bad answer."""


@flattened(KtoRecipe, LoraRecipe)
def kto_local(
    *, model: Annotated[Place | None, Option(metavar="DIR|ID")] = None, **options: Unpack[Local]
) -> TuneJob:
    """Tune a model on this machine: good answers become more probable, and bad ones less.

    Answers need not be paired: those of a store are good if their episode succeeded (or as --good says) and
    bad if it failed; each side of a pair is one. The prompt is not learned, the end of an answer is, and
    nothing is cut off or dropped. The plan is printed first. Ctrl-C stops the waiting, not the training,
    which runs in its own process.

    Args:
        model: Model to start from: a folder, an id, a job with --merge, or `sample:tiny-base`. Default:
            that of --config.

    Raises:
        RequestError: A value is invalid.
        DataError: The sides leak, or a row is too long.

    Example:
        trajkit kto local --train stores/goto --good "episode_return > 0.7" --model Qwen/Qwen3-0.6B
    """
    return train_here("kto", model, options)
