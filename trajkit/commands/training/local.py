"""Train on this machine: on the steps of a store, on pairs, on good and bad answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajkit._core.output.console import Meter, count, is_open, size, talk
from trajkit.commands.options.request import given_fields, nested, picked, recipe
from trajkit.commands.place import near
from trajkit.commands.play.local_model import FirstModel, first_model
from trajkit.commands.training.launch import carry_out, data_lines
from trajkit.commands.training.sides import learned_by, sides, unless_used
from trajkit.errors import RequestError
from trajkit.schema.base import JsonObject
from trajkit.training.local.preferences.recipe import RECIPES, DpoRecipe, KtoRecipe
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe, PlayRecipe

if TYPE_CHECKING:
    from trajkit.commands.options.training import LocalOptions, TrainingOptions, ValidationOptions
    from trajkit.commands.options.types import StoreLike
    from trajkit.training.job import JobData, TuneJob
    from trajkit.training.local.base_model import Sizes
    from trajkit.training.local.prepare import Prepared
    from trajkit.training.runs import Runs

    class _Options(ValidationOptions, LocalOptions, TrainingOptions, total=False):
        train: StoreLike | None


_WIDEST = 4 / 3
"""How much more good answers may count than bad ones: equation 8 of the paper on KTO."""


def train_here(
    method: Literal["sft", "dpo", "kto"],
    model: str | Path | None,
    options: _Options,
    fields: Mapping[str, Any] | None = None,
) -> TuneJob:
    """Plan a job on this machine, ask, start it and wait for it.

    Args:
        method: `sft`, `dpo` or `kto`.
        model: The model to start from; None for that of `--config`.
        options: The options of the command.
        fields: Further fields of the recipe.

    Raises:
        RequestError: A value is invalid, or there is no such model.
        DataError: The data leaks, or a row is too long.
        NothingMatched: No step is learned.
    """
    from trajkit.training.local.base_model import check_model
    from trajkit.training.local.outcome.finish import take_wishes
    from trajkit.training.local.prepare import LocalRequest, prepare
    from trajkit.training.local.running.launch import start
    from trajkit.training.runs import Runs

    runs = Runs(Path(options["runs"]))
    kind: type[LocalRecipe] = LocalRecipe if method == "sft" else RECIPES[method]
    lora = given_fields(options, LoraRecipe)
    given = {**given_fields(options, kind), **({"lora": lora} if lora else {}), **(fields or {})}
    first, elsewhere = _model_and_settings(model, options)
    if first.adapter is not None and method != "sft":
        raise RequestError(
            f"{first.adapter} is an adapter, and {method} compares with a whole model",
            hint="the command that made the adapter's job writes one with --merge, without training again",
        )
    base = first.base
    wanted = recipe(kind, first.recipe(nested(options["set"], _over(elsewhere, given))))
    learned = learned_by(method, options["train"])
    check_model(base)  # before anything is written for it
    with unless_used(runs) as made:
        chosen = sides(method, learned, options["val"], options["val_fraction"], made=made)
        about = {"base": base, "train": chosen.train, "validation": chosen.validation, "recipe": wanted}
        about["tokenizer"] = first.tokenizer(options["tokenizer"])
        asked = LocalRequest(method=method, **picked(options, LocalRequest.model_fields) | about)
        with Meter() as meter:
            prepared = prepare(asked, runs, name=options["name"], on_progress=meter.show)

        def begin(runs: Runs, job_id: str) -> TuneJob:
            take_wishes(runs, job_id, wanted)  # also of an existing job
            return start(runs, job_id)

        return carry_out(
            prepared,
            runs,
            options,
            plan=_plan(prepared, asked.recipe),
            question="Train?" if is_open() else None,
            nothing="nothing was trained",
            start=begin,
            n_steps=prepared.n_steps,
        )


def _model_and_settings(model: str | Path | None, options: _Options) -> tuple[FirstModel, JsonObject]:
    """The model, and the fields of the recipe that `--preset` and `--config` give."""
    from trajkit.training.local.settings import preset_fields, read_settings

    file, preset = options["config"], options["preset"]
    said = None if file is None else read_settings(Path(file))
    name = model if model is not None or said is None else said.base_model
    if name is None:
        raise RequestError("no model is given", hint="--model, or base_model in the file of --config")
    first = first_model(str(name), Path(options["runs"]))
    if said is not None and said.ignored:
        talk(f"note: {file} sets {', '.join(said.ignored)}, for which this command has options")
    found = {} if preset is None else preset_fields(preset, first.base)
    return first, found if said is None else _over(found, said.recipe)


def _over(below: JsonObject, above: JsonObject) -> JsonObject:
    """Fields of a recipe, overridden by others; those of the adapter one by one."""
    fields = {**below, **above}
    if isinstance(one := below.get("lora"), dict) and isinstance(other := above.get("lora"), dict):
        fields["lora"] = {**one, **other}
    return fields


def _plan(prepared: Prepared, recipe: LocalRecipe) -> Iterator[str]:
    job = prepared.job
    if not prepared.is_new:
        yield f"job {job.job_id} is the same: {job.status}"
    row = {"sft": "row", "dpo": "pair", "kto": "answer"}[job.method]
    if isinstance(recipe, DpoRecipe | KtoRecipe):
        yield from data_lines(job, prepared.leak, row=row, learned="answers")
        yield from _preference_lines(prepared, recipe)
    else:
        yield from data_lines(job, prepared.leak, row=row, learned="learned")
        yield from weight_lines(job.base, recipe, prepared.sizes, job.learned)
    n_rows = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps
    rows = "lines" if recipe.packing else f"{row}s"
    yield f"steps     {count(prepared.n_steps)} of {n_rows} {rows}, learning rate {recipe.learning_rate:g}"
    yield from _time_lines(job)
    if (told := job.recipe.get("play")) is not None:
        played = PlayRecipe.model_validate(told)
        worlds = f"{played.env} {', '.join(played.tasks)}, seeds {played.seeds}"
        yield f"chosen    by the mean return on {worlds}, played as {played.variant} at each validation"
    if recipe.report_to == "wandb":
        yield "reports   Weights & Biases: every loss and the recipe, over the network"
    yield "price     none: it runs on this machine"


def _time_lines(job: TuneJob) -> Iterator[str]:
    """How long it is expected to take, and the basis of the estimate."""
    if (expected := job.estimate) is not None:
        yield (
            f"time      about {expected.words}: {expected.flops:.1e} operations; a matrix product here does"
            f" {expected.flops_per_s:.1e} a second"
        )
        if job.recipe.get("play") is not None:
            yield "          what is played at each validation comes on top"


def weight_lines(
    base: str, recipe: LocalRecipe, sizes: Sizes, learned: JobData | None = None
) -> Iterator[str]:
    """Which weights are trained, the memory needed, and whether it is available.

    Args:
        base: The model.
        recipe: How it is trained.
        sizes: Its size.
        learned: The rows; None if they are not known yet.
    """
    from trajkit.training.local.base_model import batch_memory, held
    from trajkit.training.local.running.replicas import n_replicas

    lora = recipe.lora
    kind = "all weights are trained" if lora is None else _adapter_words(lora)
    trained, of = count(sizes.n_trainable), count(sizes.n_weights)
    yield f"model     {base}, {kind}"
    yield f"weights   {trained} of {of} are trained ({sizes.n_trainable / sizes.n_weights:.2%})"
    n_parts = n_replicas(recipe) if recipe.fsdp else 1
    least, more = held(recipe, sizes, n_parts), None
    each = f" in each of {n_parts} processes" if recipe.fsdp else ""
    if learned is not None:
        n_rows = min(recipe.per_device_train_batch_size, learned.n_rows)
        n_tokens = n_rows * (recipe.max_length if recipe.packing else learned.longest)
        n_learned = n_tokens * learned.n_learned_tokens // max(1, learned.n_tokens)
        more = batch_memory(sizes, n_tokens, n_learned)
    if more is None:
        yield (
            f"memory    {size(least)} for weights, gradients and optimizer{each};"
            " what a batch takes comes on top"
        )
        return
    yield (
        f"memory    {size(least)} for weights, gradients and optimizer{each}, about {size(more)} for a batch"
    )
    free = _free_memory()
    is_too_much = free is not None and least + more > free
    if is_too_much:
        ways = "--auto-batch halves the batch; --set gradient_checkpointing=true computes more and keeps less"
        yield f"          that is more than the {size(free or 0)} that are free here: {ways}"
    if recipe.fsdp or is_too_much:
        shares = ", ".join(f"{n}: {size(held(recipe, sizes, n) + more)}" for n in (1, 2, 4, 8))
        yield f"          with a batch, by the number of GPUs that share the model (fsdp): {shares}"


def _adapter_words(lora: LoraRecipe) -> str:
    words = f"LoRA of rank {lora.r}, alpha {lora.lora_alpha:g}"
    return f"{words}, continuing {near(Path(lora.adapter))}" if lora.adapter else words


def _free_memory() -> int | None:
    """Bytes that are free: of the GPU, else of the machine; None when unknown."""
    from trajkit._core.lazy import need
    from trajkit.commands.checkup.machine import memory_bytes

    cuda = need("torch", extra="local").cuda
    return int(cuda.mem_get_info()[0]) if cuda.is_available() else memory_bytes()[1]


def _preference_lines(prepared: Prepared, recipe: DpoRecipe | KtoRecipe) -> Iterator[str]:
    """Which weights are trained, the loss, and for `kto` how many answers are good and bad."""
    lora, sizes = recipe.lora, prepared.sizes
    how = "whole" if lora is None else _adapter_words(lora)
    trained = f"{count(sizes.n_trainable)} of {count(sizes.n_weights)} weights are trained"
    yield f"model     {prepared.job.base}, {how}: {trained}"
    losses = recipe.loss_type if isinstance(recipe, DpoRecipe) else (recipe.loss_type,)
    yield f"loss      {' + '.join(losses)}, beta {recipe.beta:g}"
    if not isinstance(recipe, KtoRecipe) or (found := prepared.verdicts) is None:
        return
    yield f"answers   {count(found.n_good)} good, {count(found.n_bad)} bad"
    desirable, undesirable = recipe.desirable_weight, recipe.undesirable_weight
    ratio = desirable * found.n_good / (undesirable * found.n_bad)
    if not 1 <= round(ratio, 2) <= round(_WIDEST, 2):
        few = "undesirable" if ratio > 1 else "desirable"
        weight = undesirable * ratio if ratio > 1 else desirable / ratio
        yield f"          --{few}-weight {weight:.2g} would give both the same weight"
