"""What `trajkit dpo local` and `trajkit kto local` have in common: sides, request, plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit._core import console
from trajkit.cli import training
from trajkit.cli.launch import carry_out
from trajkit.cli.local_options import price_lines

if TYPE_CHECKING:
    from trajkit.commands.sides import Sides
    from trajkit.training.local.preference_prepare import PreferenceRequest, PreparedPreference

LAST_PAIRS = "the last pairs written here"
"""What is learned where nobody says what."""
_WIDEST = 4 / 3
"""How much more good answers may count than bad ones: equation 8 of the paper on KTO."""


def train_here(method: str, asked: Mapping[str, Any], *names: str) -> int:
    """Plan, ask, start and follow a training on this machine.

    Args:
        method: `dpo` or `kto`.
        asked: The command's options.
        names: Those of them that are the method's own fields of the recipe.

    Returns:
        The exit code.
    """
    from trajkit.commands.request import preference_request
    from trajkit.commands.sides import unless_used
    from trajkit.commands.started import here
    from trajkit.training.local.preference_prepare import prepare_preference
    from trajkit.training.runs import Runs

    runs = Runs(asked["runs_folder"])
    with unless_used(runs) as made:
        request = preference_request(
            method, asked, lambda: pair_sides(method, asked, made), names, read=training.read_setting
        )
        with console.Meter() as meter:
            prepared = prepare_preference(request, runs, name=asked["name"], on_progress=meter.show)
        return carry_out(
            prepared,
            runs,
            asked,
            plan=_plan(prepared, request),
            start=here(request.recipe),
            n_steps=prepared.n_steps,
        )


def pair_sides(method: str, asked: Mapping[str, Any], made: list[Path]) -> Sides:
    """What is learned and what measures; without `--val` one is cut. `made` gets what is written for that."""
    from trajkit.commands.sides import pair_sides as found

    return found(method, asked["train"], asked["val"], asked["val_fraction"], made=made, say=console.talk)


def _plan(prepared: PreparedPreference, request: PreferenceRequest) -> Iterator[str]:
    job, recipe = prepared.job, request.recipe
    if not prepared.is_new:
        yield f"job {job.job_id} is the same: {job.status}"
    noun = "pair" if job.method == "dpo" else "answer"
    sides = [("learned", job.train)] + ([("measured", job.validation)] if job.validation is not None else [])
    for name, data in sides:
        yield (
            f"{name:9} {training.near(data.store)}  {console.plural(data.n_episodes, 'episode')}"
            f"  {console.plural(data.n_rows, noun)}  {console.count(data.n_tokens)} tokens,"
            f" {console.count(data.n_learned_tokens)} of them answers; longest {console.count(data.longest)}"
        )
        for reason, number in data.left.items():
            yield f"          not learned: {console.plural(number, noun)}: {reason}"
    for kind, number in job.train.losses.items():
        yield f"          left out: {console.plural(number, kind)}"
    if job.validation is None:
        yield "measured  nothing: the last checkpoint is kept, not the best"
    yield training.leak_line(prepared.leak)
    sizes = prepared.sizes
    lora = recipe.lora
    how = "whole" if lora is None else f"LoRA of rank {lora.r}, alpha {lora.lora_alpha:g}"
    trained = f"{console.count(sizes.n_trainable)} of {console.count(sizes.n_weights)} weights are trained"
    yield f"model     {job.base}, {how}: {trained}"
    loss = recipe.loss_type if isinstance(recipe.loss_type, str) else " + ".join(recipe.loss_type)
    yield f"loss      {loss}, beta {recipe.beta:g}"
    yield from _balance(prepared, request)
    size = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
    rate = f"learning rate {recipe.learning_rate:g}"
    yield f"steps     {console.count(prepared.n_steps)} of {size} {noun}s, {rate}"
    yield from price_lines(recipe)


def _balance(prepared: PreparedPreference, request: PreferenceRequest) -> Iterator[str]:
    """Of `kto`, how many answers are good and bad, and how they could count alike."""
    found, recipe = prepared.verdicts, request.recipe
    if found is None:
        return
    yield f"answers   {console.count(found.n_good)} good, {console.count(found.n_bad)} bad"
    desirable, undesirable = (getattr(recipe, f"{name}_weight") for name in ("desirable", "undesirable"))
    ratio = desirable * found.n_good / (undesirable * found.n_bad)
    if not 1 <= round(ratio, 2) <= round(_WIDEST, 2):
        few = "undesirable" if ratio > 1 else "desirable"
        weight = undesirable * ratio if ratio > 1 else desirable / ratio
        yield f"          --{few}-weight {weight:.2g} would let both count alike"
