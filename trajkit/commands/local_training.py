"""Tune a model on this machine: on steps, on pairs, on good and bad answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trajkit.commands.place import Many, Place, Settings, StoreLike, many, store_path

if TYPE_CHECKING:
    from trajkit.training.job import TuneJob


def sft_local(
    *,
    model: str | Path,
    train: StoreLike | None = None,
    val: StoreLike | None = None,
    val_fraction: float = 0.1,
    num_train_epochs: float | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    per_device_train_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
    max_length: int | None = None,
    r: int | None = None,
    lora_alpha: float | None = None,
    lora_dropout: float | None = None,
    seed: int | None = None,
    set: Settings | None = None,
    packing: bool | None = None,
    auto_batch: bool | None = None,
    merge: bool | None = None,
    report_to: Literal["wandb", "tensorboard"] | None = None,
    unit: Literal["episode", "step"] = "episode",
    thoughts: Literal["keep", "strip", "think-text"] = "keep",
    overlong: Literal["error", "drop", "trim-history"] = "error",
    best_by: Literal["eval_loss", "episode_return"] = "eval_loss",
    best_seeds: str | None = None,
    tokenizer: str | None = None,
    chat_template: str | None = None,
    name: str | None = None,
    allow_leak: bool = False,
    runs: Place = "runs",
    dry_run: bool = False,
    detach: bool = False,
) -> TuneJob:
    """Tune a model on this machine: LoRA with transformers and peft.

    Each answer's loss counts by its weight in the store. The training has a process of its own: a stop ends
    the waiting and not the training. The same data, model and recipe are never trained twice.

    Args:
        model: The model to start from: a folder, an id, or `sample:tiny-base`.
        train: What is learned; None for the last store that was written here.
        val: What measures on the way, and picks the best checkpoint.
        val_fraction: Without `val`, and where `split` left none beside `train`: the share that measures, cut
            by world; 0 for none.
        num_train_epochs: Passes over the rows; None for 3.
        max_steps: Steps of the optimizer, instead of epochs.
        learning_rate: At its highest; None for 0.0002.
        per_device_train_batch_size: Rows in a batch; None for 8.
        gradient_accumulation_steps: Batches of a step; None for 1.
        max_length: Most tokens of a row; None for 2048.
        r: Rank of the adapter; None for 16.
        lora_alpha: Its scale: alpha / r; None for 32.
        lora_dropout: Share of its inputs that a step leaves out; None for 0.
        seed: Of first weights and order; None for 0.
        set: Anything else of the recipe, such as `{"lora.use_dora": True, "optim": "sgd"}`.
        packing: Several rows in a line; they never see each other.
        auto_batch: Where memory runs out, halve the batch and go on.
        merge: Write adapter and base as one model too.
        report_to: Tell it every loss.
        unit: What becomes a row.
        thoughts: What becomes of thoughts.
        overlong: What becomes of rows that are too long.
        best_by: What chooses the checkpoint.
        best_seeds: What it plays then, of those that are reserved.
        tokenizer: Another one than the model's.
        chat_template: Another one than the tokenizer's.
        name: The job's name; None for one of the model and the store.
        allow_leak: Train although the stores share what they must not.
        runs: The folder where jobs are kept.
        dry_run: Train nothing, and give the job as it would be.
        detach: Do not wait for its end.

    Returns:
        The job; its status says how it ended, and `job.error` why it failed.

    Raises:
        RequestError: A value cannot be.
        DataError: The stores leak, or a row is too long.
        NothingMatched: No step is learned.
    """
    from trajkit.commands.request import local_request
    from trajkit.commands.sides import sides, unless_used
    from trajkit.commands.started import carried_out, here
    from trajkit.training.local.prepare import prepare
    from trajkit.training.runs import Runs

    asked = {**locals(), "base": str(model), "more": set or {}}
    found = Runs(Path(runs))
    with unless_used(found) as made:
        request = local_request(asked, lambda: sides(_path(train), _path(val), val_fraction, made=made))
        prepared = prepare(request, found, name=name)
        return carried_out(prepared, found, dry_run=dry_run, detach=detach, start=here(request.recipe))


def dpo_local(
    *,
    model: str | Path,
    train: Place | None = None,
    val: Place | None = None,
    val_fraction: float = 0.1,
    tokenizer: str | None = None,
    chat_template: str | None = None,
    beta: float | None = None,
    loss_type: Many = (),
    label_smoothing: float | None = None,
    num_train_epochs: float | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    per_device_train_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
    max_length: int | None = None,
    r: int | None = None,
    lora_alpha: float | None = None,
    lora_dropout: float | None = None,
    seed: int | None = None,
    set: Settings | None = None,
    auto_batch: bool | None = None,
    merge: bool | None = None,
    report_to: Literal["wandb", "tensorboard"] | None = None,
    thoughts: Literal["keep", "strip", "think-text"] = "keep",
    name: str | None = None,
    allow_leak: bool = False,
    runs: Place = "runs",
    dry_run: bool = False,
    detach: bool = False,
) -> TuneJob:
    """Tune a model on this machine: the better answer of each pair becomes more probable than the worse one.

    Options that are not told of here are those of `sft_local`.

    Args:
        model: The model to start from.
        train: The pairs that are learned; None for the last that were written here.
        val: The pairs that measure on the way.
        val_fraction: Without `val`: the share that measures, cut by group; 0 for none.
        tokenizer: As in `sft_local`.
        chat_template: As in `sft_local`.
        beta: The higher, the nearer it stays to the model; None for 0.1.
        loss_type: sigmoid, ipo, hinge, robust, apo_zero …; none for sigmoid.
        label_smoothing: robust: share of pairs that are the wrong way round.
        num_train_epochs: Passes over the pairs; None for 1.
        max_steps: As in `sft_local`.
        learning_rate: At its highest; None for 0.00001.
        per_device_train_batch_size: As in `sft_local`.
        gradient_accumulation_steps: As in `sft_local`.
        max_length: Most tokens of a prompt with its answer; None for 2048.
        r: As in `sft_local`.
        lora_alpha: As in `sft_local`.
        lora_dropout: As in `sft_local`.
        seed: As in `sft_local`.
        set: As in `sft_local`.
        auto_batch: As in `sft_local`.
        merge: As in `sft_local`.
        report_to: As in `sft_local`.
        thoughts: As in `sft_local`.
        name: As in `sft_local`.
        allow_leak: As in `sft_local`.
        runs: As in `sft_local`.
        dry_run: As in `sft_local`.
        detach: As in `sft_local`.

    Returns:
        The job; its status says how it ended.

    Raises:
        RequestError: A value cannot be, or there are no pairs.
        DataError: The sides leak, or a pair is too long.
    """
    asked = {**locals(), "loss_type": many(loss_type) or None}
    return _prefer("dpo", asked, "beta", "loss_type", "label_smoothing")


def kto_local(
    *,
    model: str | Path,
    train: StoreLike | None = None,
    val: StoreLike | None = None,
    val_fraction: float = 0.1,
    tokenizer: str | None = None,
    chat_template: str | None = None,
    good: str | None = None,
    beta: float | None = None,
    loss_type: Literal["kto", "apo_zero_unpaired"] | None = None,
    desirable_weight: float | None = None,
    undesirable_weight: float | None = None,
    num_train_epochs: float | None = None,
    max_steps: int | None = None,
    learning_rate: float | None = None,
    per_device_train_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
    max_length: int | None = None,
    r: int | None = None,
    lora_alpha: float | None = None,
    lora_dropout: float | None = None,
    seed: int | None = None,
    set: Settings | None = None,
    auto_batch: bool | None = None,
    merge: bool | None = None,
    report_to: Literal["wandb", "tensorboard"] | None = None,
    thoughts: Literal["keep", "strip", "think-text"] = "keep",
    name: str | None = None,
    allow_leak: bool = False,
    runs: Place = "runs",
    dry_run: bool = False,
    detach: bool = False,
) -> TuneJob:
    """Tune a model on this machine: good answers become more probable, and bad ones less.

    Options that are not told of here are those of `sft_local`.

    Args:
        model: The model to start from.
        train: Pairs, or a store; None for the last pairs that were written here, else the last store.
        val: What measures on the way.
        val_fraction: Without `val`: the share that measures; 0 for none.
        tokenizer: As in `sft_local`.
        chat_template: As in `sft_local`.
        good: Of a store: the episodes whose answers are good, as SQL.
        beta: The higher, the nearer it stays to the model; None for 0.1.
        loss_type: The loss; None for kto.
        desirable_weight: How much a good answer counts; None for 1.
        undesirable_weight: How much a bad one does; None for 1.
        num_train_epochs: Passes over the answers; None for 1.
        max_steps: As in `sft_local`.
        learning_rate: At its highest; None for 0.00001.
        per_device_train_batch_size: As in `sft_local`.
        gradient_accumulation_steps: As in `sft_local`.
        max_length: Most tokens of a prompt with its answer; None for 2048.
        r: As in `sft_local`.
        lora_alpha: As in `sft_local`.
        lora_dropout: As in `sft_local`.
        seed: As in `sft_local`.
        set: As in `sft_local`.
        auto_batch: As in `sft_local`.
        merge: As in `sft_local`.
        report_to: As in `sft_local`.
        thoughts: As in `sft_local`.
        name: As in `sft_local`.
        allow_leak: As in `sft_local`.
        runs: As in `sft_local`.
        dry_run: As in `sft_local`.
        detach: As in `sft_local`.

    Returns:
        The job; its status says how it ended.

    Raises:
        RequestError: A value cannot be.
        DataError: The sides leak, or a row is too long.
    """
    return _prefer("kto", locals(), "beta", "loss_type", "desirable_weight", "undesirable_weight")


def _prefer(method: str, given: dict[str, Any], *names: str) -> TuneJob:
    from trajkit.commands.request import preference_request
    from trajkit.commands.sides import pair_sides, unless_used
    from trajkit.commands.started import carried_out, here
    from trajkit.training.local.preference_prepare import prepare_preference
    from trajkit.training.runs import Runs

    asked = {**given, "base": str(given["model"]), "more": given["set"] or {}}
    found = Runs(Path(asked["runs"]))
    given_sides = (_path(asked["train"]), _path(asked["val"]), asked["val_fraction"])
    with unless_used(found) as made:
        request = preference_request(
            method, asked, lambda: pair_sides(method, *given_sides, made=made), names
        )
        prepared = prepare_preference(request, found, name=asked["name"])
        start = here(request.recipe)
        return carried_out(prepared, found, dry_run=asked["dry_run"], detach=asked["detach"], start=start)


def _path(store: StoreLike | None) -> str | None:
    """Where it is; None leaves the choice to others."""
    return None if store is None else store_path(store)
