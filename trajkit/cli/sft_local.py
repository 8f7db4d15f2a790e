"""`trajkit sft local`: tune a model on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._settings import project, remember
from trajkit.cli import output, training
from trajkit.cli.jobs import Follower, print_job
from trajkit.cli.local_options import given_recipe, left_lines, output_options, recipe_options, weight_lines
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.targets.local.prepare import LocalRequest, Prepared

_ROWS = ("unit", "thoughts", "overlong", "tokenizer", "chat_template", "allow_leak")


@click.command()
@training.store_options
@click.option("--model", "base", required=True, metavar="DIR|ID", help="The model to start from.")
@recipe_options
@click.option(
    "--packing", is_flag=True, default=None, help="Several rows in a line; they never see each other."
)
@output_options
@training.row_options
@click.option(
    "--overlong",
    type=click.Choice(["error", "drop", "trim-history"]),
    default="error",
    show_default=True,
    help="What becomes of rows that are too long.",
)
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
@click.option("--tokenizer", metavar="DIR|ID", help="Another one than the model's, which may have none.")
@click.option(
    "--chat-template",
    metavar="NAME|FILE",
    help="Another one than the tokenizer's: chatml, plain, or a file (Jinja).",
)
@training.job_options
def local(runs_folder: Path, dry_run: bool, yes: bool, detach: bool, as_json: bool, **asked: Any) -> int:
    """Tune a model on this machine: LoRA with transformers and peft.

    Each answer's loss counts by its weight in the store; nothing else of a row is learned, and nothing is
    cut off. The plan comes first. Ctrl-C stops the waiting and not the training, which has a process of its
    own. The same data, model and recipe are never trained twice: the job that is there is shown.
    """
    from trajkit.targets.local.finish import take_wishes
    from trajkit.targets.local.launch import start
    from trajkit.targets.local.prepare import prepare
    from trajkit.targets.runs import Runs

    runs = Runs(runs_folder)
    request = _request(asked)
    with output.Meter() as meter:
        prepared = prepare(request, runs, name=asked["name"], on_progress=meter.show)
    for line in _plan(prepared, request):
        output.talk(line)
    job_id = prepared.job.job_id
    if dry_run:
        if prepared.is_new:
            runs.remove(job_id)
        output.talk("dry run: nothing was trained")
        return 0
    training.confirm(yes=yes)
    remember("last_job", {"runs": str(runs_folder.absolute()), "job_id": job_id})
    take_wishes(runs, job_id, request.recipe)
    job = start(runs, job_id)
    if not detach:
        job = Follower(runs, job_id, prepared.n_steps).wait()
    for line in left_lines(runs, job):
        output.talk(line)
    print_job(runs, job, as_json=as_json)
    return 1 if job.status in ("failed", "cancelled") else 0


def _request(asked: dict[str, Any]) -> LocalRequest:
    from trajkit.targets.local.prepare import LocalRequest
    from trajkit.targets.local.recipe import LocalRecipe

    given = given_recipe(asked, "packing") | _play(asked)
    train, validation = training.sides(asked)
    return LocalRequest(
        base=asked["base"],
        train=train,
        validation=validation,
        recipe=training.recipe(LocalRecipe, given, asked["more"]),
        **{name: asked[name] for name in _ROWS},
    )


def _play(asked: dict[str, Any]) -> dict[str, Any]:
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


def _plan(prepared: Prepared, request: LocalRequest) -> Iterator[str]:
    from trajkit.targets.local.recipe import PlayRecipe

    job, recipe = prepared.job, request.recipe
    if not prepared.is_new:
        yield f"job {job.job_id} is the same: {job.status}"
    yield from training.side_lines(job)
    yield training.leak_line(prepared.leak)
    yield from weight_lines(job.base, recipe, prepared.sizes)
    size = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
    rows = "lines" if recipe.packing else "rows"
    rate = f"learning rate {recipe.learning_rate:g}"
    yield f"steps     {output.count(prepared.n_steps)} of {size} {rows}, {rate}"
    if (told := job.recipe.get("play")) is not None:
        played = PlayRecipe.model_validate(told)
        worlds = f"{played.env} {', '.join(played.tasks)}, seeds {played.seeds}"
        yield f"chosen    by the mean return on {worlds}, played as {played.variant} at each validation"
    if recipe.report_to == "wandb":
        yield "told      Weights & Biases: every loss and the recipe, over the network"
    yield "price     none: it runs on this machine"
