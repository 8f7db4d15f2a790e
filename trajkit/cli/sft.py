"""`trajkit sft`: tune a model on the steps of a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._settings import project, remember
from trajkit.cli import output
from trajkit.cli.info import last_store
from trajkit.cli.jobs import Follower, print_job, runs_option
from trajkit.cli.page import visible
from trajkit.cli.settings import settings_option
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.targets.local.prepare import LocalRequest, Prepared
    from trajkit.targets.local.recipe import LocalRecipe

_LORA = ("r", "lora_alpha", "lora_dropout")
_RECIPE = (
    "num_train_epochs",
    "max_steps",
    "learning_rate",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_length",
    "packing",
    "seed",
)


@click.group()
def sft() -> None:
    """Tune a model on what the steps of a store did: supervised fine-tuning."""


@sft.command()
@click.option("--train", metavar="STORE", help="What is learned; by default the last store written here.")
@click.option("--val", metavar="STORE", help="What measures on the way, and picks the best checkpoint.")
@click.option(
    "--val-fraction",
    type=click.FloatRange(min=0, max=0.5),
    default=0.1,
    show_default=True,
    help="Without --val: the share of the store that measures, cut by world; 0 for none.",
)
@click.option("--model", "base", required=True, metavar="DIR|ID", help="The model to start from.")
@click.option("--name", metavar="NAME", help="Name of the job.  [default: of the model and the store]")
@click.option("--num-train-epochs", type=float, help="Passes over the rows.  [default: 3]")
@click.option("--max-steps", type=int, help="Steps of the optimizer, instead of epochs.")
@click.option("--learning-rate", type=float, help="At its highest.  [default: 0.0002]")
@click.option("--per-device-train-batch-size", type=int, help="Rows in a batch.  [default: 8]")
@click.option("--gradient-accumulation-steps", type=int, help="Batches of a step.  [default: 1]")
@click.option(
    "--max-length", type=int, help="Most tokens of a row; a longer one is an error.  [default: 2048]"
)
@click.option(
    "--packing", is_flag=True, default=None, help="Several rows in a line; they never see each other."
)
@click.option("--r", type=int, help="Rank of the adapter.  [default: 16]")
@click.option("--lora-alpha", type=float, help="The adapter is scaled by alpha / r.  [default: 32]")
@click.option("--lora-dropout", type=float, help="Share of its inputs that a step leaves out.  [default: 0]")
@click.option("--seed", type=int, help="Of first weights and order.  [default: 0]")
@settings_option(
    "--set",
    "more",
    "Anything else of the recipe, such as lora=null (all weights), lora.use_dora=true, optim=sgd,"
    " gradient_checkpointing=true, early_stopping_patience=3; may be repeated.",
)
@click.option(
    "--unit",
    type=click.Choice(["episode", "step"]),
    default="episode",
    show_default=True,
    help="What becomes a row: an append-only conversation with all its answers, or a step.",
)
@click.option(
    "--thoughts",
    type=click.Choice(["keep", "strip", "think-text"]),
    default="keep",
    show_default=True,
    help="What becomes of thoughts.",
)
@click.option("--allow-leak", is_flag=True, help="Train although the stores share what they must not.")
@runs_option
@click.option("--dry-run", is_flag=True, help="Print the plan and train nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--detach", is_flag=True, help="Do not wait: `trajkit jobs wait` does.")
@click.option("--json", "as_json", is_flag=True, help="Print the job as JSON.")
def local(runs_folder: Path, dry_run: bool, yes: bool, detach: bool, as_json: bool, **asked: Any) -> int:
    """Tune a model on this machine: LoRA with transformers and peft.

    Each answer's loss counts by its weight in the store; nothing else of a row is learned, and nothing is
    cut off. The plan comes first. Ctrl-C stops the waiting and not the training, which has a process of its
    own. The same data, model and recipe are never trained twice: the job that is there is shown.
    """
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
    _confirm(yes=yes)
    remember("last_job", {"runs": str(runs_folder.absolute()), "job_id": job_id})
    job = start(runs, job_id)
    if not detach:
        job = Follower(runs, job_id, prepared.n_steps).wait()
    print_job(runs, job, as_json=as_json)
    return 1 if job.status in ("failed", "cancelled") else 0


def _request(asked: dict[str, Any]) -> LocalRequest:
    from trajkit.targets.local.prepare import LocalRequest

    train = Path(asked["train"] or last_store())
    validation = None if asked["val"] is None else Path(asked["val"])
    if validation is None and asked["val_fraction"]:
        train, validation = _cut(train, asked["val_fraction"])
    return LocalRequest(
        base=asked["base"],
        train=train,
        validation=validation,
        recipe=_recipe(asked),
        unit=asked["unit"],
        thoughts=asked["thoughts"],
        allow_leak=asked["allow_leak"],
    )


def _recipe(asked: dict[str, Any]) -> LocalRecipe:
    """What the options say, and over it what --set says."""
    from pydantic import ValidationError

    from trajkit.targets.local.recipe import LocalRecipe

    given: dict[str, Any] = {name: asked[name] for name in _RECIPE if asked[name] is not None}
    given["lora"] = {name: asked[name] for name in _LORA if asked[name] is not None}
    for path, value in asked["more"].items():
        place, names = given, path.split(".")
        for name in names[:-1]:
            place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise RequestError(f"--set {path}: {'.'.join(names[:-1])} is no group", hint="such as lora.r=8")
        place[names[-1]] = value
    try:
        return LocalRecipe.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        known = ", ".join(LocalRecipe.model_fields)
        said = f"{where}: {message}" if where else message
        raise RequestError(said, hint=f"the recipe has {known}") from error


def _cut(train: Path, fraction: float) -> tuple[Path, Path]:
    """The two sides of a store; those of an earlier cut are taken again."""
    from trajkit.curate.split import split
    from trajkit.store.reader import open_store

    digest = open_store(train).manifest.digest
    goal = Path(project().stores) / f"sft-{digest[:12]}-{fraction:g}"
    if not goal.exists():
        split(train, goal, ratio={"train": 1 - fraction, "val": fraction})
        output.talk(
            f"{goal}  the store, cut by world: {1 - fraction:.0%} to learn, {fraction:.0%} to measure"
        )
    return goal / "train", goal / "val"


def _plan(prepared: Prepared, request: LocalRequest) -> Iterator[str]:
    job, recipe = prepared.job, request.recipe
    if not prepared.is_new:
        yield f"job {job.job_id} is the same: {job.status}"
    sides = [("learned", job.train)] + ([("measured", job.validation)] if job.validation is not None else [])
    for name, data in sides:
        yield (
            f"{name:9} {_near(data.store)}  {output.plural(data.n_episodes, 'episode')}"
            f"  {output.plural(data.n_rows, 'row')}  {output.count(data.n_tokens)} tokens,"
            f" {output.count(data.n_learned_tokens)} of them learned; longest {output.count(data.longest)}"
        )
    for reason, number in job.train.left.items():
        yield f"          not learned: {output.plural(number, 'step')}: {visible(reason)}"
    for kind, number in job.train.losses.items():
        yield f"          left out: {output.plural(number, kind)}"
    if job.validation is None:
        yield "measured  nothing: the last checkpoint is kept, not the best"
    found = prepared.leak
    leaks = "; ".join(finding.words for finding in found.blocking) if found.leaks else "none"
    yield f"leaks     {leaks}{' (allowed)' if found.leaks else ''}"
    yield f"model     {job.base}, {_trained(recipe)}"
    size = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
    rows = "lines" if recipe.packing else "rows"
    rate = f"learning rate {recipe.learning_rate:g}"
    yield f"steps     {output.count(prepared.n_steps)} of {size} {rows}, {rate}"
    yield "price     none: it runs on this machine"


def _near(path: Path) -> Path:
    """A path as it is seen from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _trained(recipe: LocalRecipe) -> str:
    if recipe.lora is None:
        return "all weights are trained"
    return f"LoRA of rank {recipe.lora.r}, alpha {recipe.lora.lora_alpha:g}"


def _confirm(*, yes: bool) -> None:
    if yes:
        return
    if not (sys.stdin.isatty() and output.is_terminal()):
        raise RequestError("nobody is here to ask", hint="--yes trains, --dry-run shows the plan alone")
    if not click.confirm("Train?", err=True):
        output.talk("nothing was trained")
        raise click.exceptions.Exit(1)
