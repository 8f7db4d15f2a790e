"""`trajkit sft local`: tune a model on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit.cli import training
from trajkit.cli.launch import carry_out
from trajkit.cli.local_options import (
    base_option,
    output_options,
    price_lines,
    recipe_options,
    template_options,
    weight_lines,
)
from trajkit.cli.option import overlong_option

if TYPE_CHECKING:
    from trajkit.training.local.prepare import LocalRequest, Prepared


@click.command()
@training.side_options()
@base_option
@recipe_options(n_epochs="3", learning_rate="0.0002", row="a row", such_as="lora.use_dora=true")
@click.option(
    "--packing", is_flag=True, default=None, help="Several rows in a line; they never see each other."
)
@output_options
@training.row_options
@overlong_option
@click.option(
    "--best-by",
    type=click.Choice(["eval_loss", "episode_return"]),
    default="eval_loss",
    show_default=True,
    help="What chooses the checkpoint: the validation loss, or how the model plays.",
)
@click.option(
    "--best-seeds", metavar="SEEDS", help="What it plays then, of those that `trajkit reserve` keeps."
)
@template_options
@training.job_options
def local(**asked: Any) -> int:
    """Tune a model on this machine: LoRA with transformers and peft.

    Each answer's loss counts by its weight in the store; nothing else of a row is learned, and nothing is
    cut off. The plan comes first. Ctrl-C stops the waiting and not the training, which has a process of its
    own. The same data, model and recipe are never trained twice: the job that is there is shown.
    """
    from trajkit.commands.request import local_request
    from trajkit.commands.sides import unless_used
    from trajkit.commands.started import here
    from trajkit.training.local.prepare import prepare
    from trajkit.training.runs import Runs

    runs = Runs(asked["runs_folder"])
    with unless_used(runs) as made:
        request = local_request(asked, lambda: training.sides(asked, made), read=training.read_setting)
        with console.Meter() as meter:
            prepared = prepare(request, runs, name=asked["name"], on_progress=meter.show)
        return carry_out(
            prepared,
            runs,
            asked,
            plan=_plan(prepared, request),
            start=here(request.recipe),
            n_steps=prepared.n_steps,
        )


def _plan(prepared: Prepared, request: LocalRequest) -> Iterator[str]:
    from trajkit.training.local.recipe import PlayRecipe

    job, recipe = prepared.job, request.recipe
    if not prepared.is_new:
        yield f"job {job.job_id} is the same: {job.status}"
    yield from training.side_lines(job)
    yield training.leak_line(prepared.leak)
    yield from weight_lines(job.base, recipe, prepared.sizes)
    size = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
    rows = "lines" if recipe.packing else "rows"
    rate = f"learning rate {recipe.learning_rate:g}"
    yield f"steps     {console.count(prepared.n_steps)} of {size} {rows}, {rate}"
    if (told := job.recipe.get("play")) is not None:
        played = PlayRecipe.model_validate(told)
        worlds = f"{played.env} {', '.join(played.tasks)}, seeds {played.seeds}"
        yield f"chosen    by the mean return on {worlds}, played as {played.variant} at each validation"
    yield from price_lines(recipe)
