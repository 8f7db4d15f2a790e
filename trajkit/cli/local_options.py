"""Options of every command that trains on this machine: the recipe, by the names that the trainers use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from trajkit._core import console
from trajkit.cli.option import Command, adding
from trajkit.cli.settings import settings_option

if TYPE_CHECKING:
    from trajkit.training.local.base_model import Sizes
    from trajkit.training.local.recipe import LocalRecipe

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
    """The options of every method's recipe, and `--set` for what has none.

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
"""`--auto-batch`, `--merge` and `--report-to`, which make fields of the recipe."""


def weight_lines(base: str, recipe: LocalRecipe, sizes: Sizes) -> Iterator[str]:
    """The lines of a plan that say what of a model is trained, and what memory that takes at least."""
    from trajkit.training.local.base_model import least_memory

    if recipe.lora is None:
        kind = "all weights are trained"
    else:
        kind = f"LoRA of rank {recipe.lora.r}, alpha {recipe.lora.lora_alpha:g}"
    trained, of = console.count(sizes.n_trainable), console.count(sizes.n_weights)
    yield f"model     {base}, {kind}"
    yield f"weights   {trained} of {of} are trained ({sizes.n_trainable / sizes.n_weights:.2%})"
    least = console.size(least_memory(recipe, sizes))
    yield f"memory    {least} for weights, gradients and optimizer; what a batch takes comes on top"


def price_lines(recipe: LocalRecipe) -> Iterator[str]:
    """The lines of a plan that say who is told of the losses over the network, and what it costs."""
    if recipe.report_to == "wandb":
        yield "told      Weights & Biases: every loss and the recipe, over the network"
    yield "price     none: it runs on this machine"
