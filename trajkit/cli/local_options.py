"""Options of every command that trains on this machine: the recipe, by the names that the trainers use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from trajkit.cli import output
from trajkit.cli.option import Command, adding
from trajkit.cli.settings import settings_option

if TYPE_CHECKING:
    from trajkit.targets.job import TuneJob
    from trajkit.targets.local.base_model import Sizes
    from trajkit.targets.local.recipe import LocalRecipe
    from trajkit.targets.runs import Runs

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


base_option = click.option(
    "--model", "base", required=True, metavar="DIR|ID", help="The model to start from."
)
"""The model, as `base`."""

template_options = adding(
    click.option("--tokenizer", metavar="DIR|ID", help="Another one than the model's, which may have none."),
    click.option(
        "--chat-template",
        metavar="NAME|FILE",
        help="Another one than the tokenizer's: chatml, plain, or a file (Jinja).",
    ),
)
"""`--tokenizer` and `--chat-template`: what turns a row into tokens."""


def recipe_options(
    *, n_epochs: str, learning_rate: str, row: str, such_as: str
) -> Callable[[Command], Command]:
    """The options that `given_recipe` reads for every method, and `--set` for what has none.

    Args:
        n_epochs: Passes over the rows where nobody says how many.
        learning_rate: The same for the learning rate.
        row: What `--max-length` limits.
        such_as: What else `--set` reaches.
    """
    return adding(
        click.option("--num-train-epochs", type=float, help=f"Passes over the rows.  [default: {n_epochs}]"),
        click.option("--max-steps", type=int, help="Steps of the optimizer, instead of epochs."),
        click.option("--learning-rate", type=float, help=f"At its highest.  [default: {learning_rate}]"),
        click.option("--per-device-train-batch-size", type=int, help="Rows in a batch.  [default: 8]"),
        click.option("--gradient-accumulation-steps", type=int, help="Batches of a step.  [default: 1]"),
        click.option(
            "--max-length",
            type=int,
            help=f"Most tokens of {row}; a longer one is an error.  [default: 2048]",
        ),
        click.option("--r", type=int, help="Rank of the adapter.  [default: 16]"),
        click.option("--lora-alpha", type=float, help="Its scale: alpha / r.  [default: 32]"),
        click.option(
            "--lora-dropout", type=float, help="Share of its inputs that a step leaves out.  [default: 0]"
        ),
        click.option("--seed", type=int, help="Of first weights and order.  [default: 0]"),
        settings_option(
            "--set",
            "more",
            f"Anything else of the recipe, such as {such_as}, lora=null (all weights), optim=sgd,"
            " gradient_checkpointing=true, early_stopping_patience=3; may be repeated.",
        ),
    )


output_options = adding(
    click.option(
        "--auto-batch",
        is_flag=True,
        default=None,
        help="Where memory runs out, halve the batch, keep the rows of a step, and go on.",
    ),
    click.option(
        "--merge",
        is_flag=True,
        default=None,
        help="Write adapter and base as one model too, which needs no peft.",
    ),
    click.option("--report-to", type=click.Choice(["wandb", "tensorboard"]), help="Tell it every loss."),
)
"""`--auto-batch`, `--merge` and `--report-to`, which `given_recipe` reads."""


def given_recipe(asked: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The fields of a recipe that were given.

    Args:
        asked: The command's options.
        more: Names of options beside those of `recipe_options`.
    """
    names = [name for name in (*_RECIPE, *more) if asked.get(name) is not None]
    given: dict[str, Any] = {name: asked[name] for name in names}
    given["lora"] = {name: asked[name] for name in _LORA if asked[name] is not None}
    return given


def weight_lines(base: str, recipe: LocalRecipe, sizes: Sizes) -> Iterator[str]:
    """The lines of a plan that say what of a model is trained, and what memory that takes at least."""
    from trajkit.targets.local.base_model import least_memory

    if recipe.lora is None:
        kind = "all weights are trained"
    else:
        kind = f"LoRA of rank {recipe.lora.r}, alpha {recipe.lora.lora_alpha:g}"
    trained, of = output.count(sizes.n_trainable), output.count(sizes.n_weights)
    yield f"model     {base}, {kind}"
    yield f"weights   {trained} of {of} are trained ({sizes.n_trainable / sizes.n_weights:.2%})"
    least = output.size(least_memory(recipe, sizes))
    yield f"memory    {least} for weights, gradients and optimizer; what a batch takes comes on top"


def price_lines(recipe: LocalRecipe) -> Iterator[str]:
    """The lines of a plan that say who is told of the losses over the network, and what it costs."""
    if recipe.report_to == "wandb":
        yield "told      Weights & Biases: every loss and the recipe, over the network"
    yield "price     none: it runs on this machine"


def starting(recipe: LocalRecipe) -> Callable[[Runs, str], TuneJob]:
    """What starts a prepared job here, and first takes note of what is asked of one that is there already.

    Args:
        recipe: As it is asked for now.
    """
    from trajkit.targets.local.finish import take_wishes
    from trajkit.targets.local.launch import start

    def begin(runs: Runs, job_id: str) -> TuneJob:
        take_wishes(runs, job_id, recipe)
        return start(runs, job_id)

    return begin
