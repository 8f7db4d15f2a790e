"""What `trajkit dpo local` and `trajkit kto local` have in common: sides, request, plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit._settings import project, remembered
from trajkit.cli import output, training
from trajkit.cli.info import last_store
from trajkit.cli.launch import carry_out
from trajkit.cli.local_options import given_recipe, price_lines, starting
from trajkit.cli.page import visible
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.targets.local.preference_prepare import PreferenceRequest, PreparedPreference

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
    from trajkit.targets.local.preference_prepare import prepare_preference
    from trajkit.targets.runs import Runs

    runs = Runs(asked["runs_folder"])
    request = _request(method, asked, names)
    with output.Meter() as meter:
        prepared = prepare_preference(request, runs, name=asked["name"], on_progress=meter.show)
    return carry_out(
        prepared,
        runs,
        asked,
        plan=_plan(prepared, request),
        start=starting(request.recipe),
        n_steps=prepared.n_steps,
    )


def _request(method: str, asked: Mapping[str, Any], names: tuple[str, ...]) -> PreferenceRequest:
    from trajkit.targets.local.preference_prepare import PreferenceRequest
    from trajkit.targets.local.preference_recipe import RECIPES

    recipe = training.recipe(RECIPES[method], given_recipe(asked, *names), asked["more"])
    sides = pair_sides(method, asked)
    return PreferenceRequest(
        method=method,
        base=asked["base"],
        train=sides.train,
        validation=sides.validation,
        recipe=recipe,
        good=asked.get("good"),
        tokenizer=asked["tokenizer"],
        chat_template=asked["chat_template"],
        thoughts=asked["thoughts"],
        allow_leak=asked["allow_leak"],
    )


def pair_sides(method: str, asked: Mapping[str, Any]) -> training.Sides:
    """What is learned and what measures; without `--val` one is cut."""
    from trajkit.curate.pair_file import MANIFEST_NAME

    train = Path(asked["train"] or _last(method))
    if (train / MANIFEST_NAME).is_file():
        if asked["val"] is not None:
            return training.Sides(train, Path(asked["val"]))
        return _cut(train, asked["val_fraction"]) if asked["val_fraction"] else training.Sides(train, None)
    if method == "dpo":
        return training.Sides(train, None)  # it says itself that it is none
    return training.sides({**asked, "train": str(train)})


def _last(method: str) -> str:
    """The last pairs that were written here; for `kto` the last store, where no pairs were."""
    if (last := remembered("last_pairs")) is not None:
        return str(last["path"])
    if method == "kto":
        return last_store()
    raise RequestError("no --train, and no pairs were written here", hint="`trajkit pairs` writes some")


def _cut(train: Path, fraction: float) -> training.Sides:
    """The two sides of a set of pairs; those of an earlier cut are taken again."""
    from trajkit.curate.pair_cut import TRAIN, VALIDATION, cut_pairs
    from trajkit.curate.pair_file import open_pairs

    pairs = open_pairs(train)
    goal = Path(project().stores) / f"pairs-{pairs.manifest.digest[:12]}-{fraction:g}"
    if not goal.exists():
        found = cut_pairs(pairs, goal, fraction=fraction)
        words = f"{1 - fraction:.0%} of the groups to learn, {fraction:.0%} to measure"
        output.talk(f"{goal}  the pairs, cut by group: {words}")
        if found.n_parted:
            output.talk(
                f"left out: {output.plural(found.n_parted, 'pair')} whose episodes came to different sides"
            )
    return training.Sides(goal / TRAIN, goal / VALIDATION)


def _plan(prepared: PreparedPreference, request: PreferenceRequest) -> Iterator[str]:
    job, recipe = prepared.job, request.recipe
    if not prepared.is_new:
        yield f"job {job.job_id} is the same: {job.status}"
    noun = "pair" if job.method == "dpo" else "answer"
    sides = [("learned", job.train)] + ([("measured", job.validation)] if job.validation is not None else [])
    for name, data in sides:
        yield (
            f"{name:9} {training.near(data.store)}  {output.plural(data.n_episodes, 'episode')}"
            f"  {output.plural(data.n_rows, noun)}  {output.count(data.n_tokens)} tokens,"
            f" {output.count(data.n_learned_tokens)} of them answers; longest {output.count(data.longest)}"
        )
        for reason, number in data.left.items():
            yield f"          not learned: {output.plural(number, noun)}: {visible(reason)}"
    for kind, number in job.train.losses.items():
        yield f"          left out: {output.plural(number, kind)}"
    if job.validation is None:
        yield "measured  nothing: the last checkpoint is kept, not the best"
    yield training.leak_line(prepared.leak)
    sizes = prepared.sizes
    lora = recipe.lora
    how = "whole" if lora is None else f"LoRA of rank {lora.r}, alpha {lora.lora_alpha:g}"
    trained = f"{output.count(sizes.n_trainable)} of {output.count(sizes.n_weights)} weights are trained"
    yield f"model     {job.base}, {how}: {trained}"
    loss = recipe.loss_type if isinstance(recipe.loss_type, str) else " + ".join(recipe.loss_type)
    yield f"loss      {loss}, beta {recipe.beta:g}"
    yield from _balance(prepared, request)
    size = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
    rate = f"learning rate {recipe.learning_rate:g}"
    yield f"steps     {output.count(prepared.n_steps)} of {size} {noun}s, {rate}"
    yield from price_lines(recipe)


def _balance(prepared: PreparedPreference, request: PreferenceRequest) -> Iterator[str]:
    """Of `kto`, how many answers are good and bad, and how they could count alike."""
    found, recipe = prepared.verdicts, request.recipe
    if found is None:
        return
    yield f"answers   {output.count(found.n_good)} good, {output.count(found.n_bad)} bad"
    desirable, undesirable = (getattr(recipe, f"{name}_weight") for name in ("desirable", "undesirable"))
    ratio = desirable * found.n_good / (undesirable * found.n_bad)
    if not 1 <= round(ratio, 2) <= round(_WIDEST, 2):
        few = "undesirable" if ratio > 1 else "desirable"
        weight = undesirable * ratio if ratio > 1 else desirable / ratio
        yield f"          --{few}-weight {weight:.2g} would let both count alike"
