"""Train a model on this machine: from tokenised rows to a folder with an adapter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.lazy import need
from trajkit.errors import DataError
from trajkit.rollouts.records.record import RETURN_METRIC
from trajkit.rollouts.records.summary import Mean
from trajkit.schema import Model
from trajkit.training.job import Step
from trajkit.training.local.arguments import arguments_of, callbacks_of, mean_loss
from trajkit.training.local.base_model import (
    begin_sharded,
    can_share,
    count,
    gathered,
    load_base,
    precision,
    shard_on_cpus,
)
from trajkit.training.local.loss import weighted_loss
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.running.attempt import run_timed, sparing
from trajkit.training.local.tokens.batch import TokenRows, buckets, collate, pack_rows
from trajkit.training.local.tokens.tokenised import open_tokens


@functools.cache
def trainer_class() -> type[Any]:
    """Create the trainer class on first use, because its base takes seconds to import."""
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    output = need("transformers.trainer_utils", extra="local").EvalLoopOutput

    class Buckets(torch.utils.data.Sampler):  # type: ignore[misc,name-defined]
        """Rows of similar length together, in an order that depends on seed and epoch."""

        def __init__(self, lengths: Any, n_rows: int, seed: int) -> None:
            self._lengths, self._n_rows, self._seed = lengths, n_rows, seed
            self._epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self._epoch = epoch

        def __len__(self) -> int:
            return len(self._lengths)

        def __iter__(self) -> Iterator[int]:
            return iter(buckets(self._lengths, self._n_rows, [self._seed, self._epoch]))

    class WeightedTrainer(transformers.Trainer):  # type: ignore[misc,name-defined]
        """Counts weights instead of labels, so that gradient accumulation divides by the right number."""

        def __init__(
            self,
            *,
            buckets_seed: int | None = None,
            player: Callable[[Any], Mean] | None = None,
            **options: Any,
        ) -> None:
            super().__init__(**options)
            self._player = player
            self._buckets_seed = buckets_seed
            # the loss is already divided by the weights of all accumulated batches
            self.model_accepts_loss_kwargs = True

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            if self._buckets_seed is None:
                return super()._get_train_sampler(train_dataset)
            # transformers' own order depends on torch's state, so a resumed training would get another order
            n_rows = self._train_batch_size * self.args.gradient_accumulation_steps
            return Buckets(self.train_dataset.lengths, n_rows, self._buckets_seed)

        def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
            weight = sum(batch["weights"][:, 1:].sum() for batch in batch_samples).to(device)
            return self.accelerator.gather(weight).sum()

        def compute_loss(
            self,
            model: Any,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            loss = weighted_loss(model, inputs)
            # with several processes, each has a part of the sum, and gradients are averaged
            n_processes = self.accelerator.num_processes
            divisor = loss.weight if num_items_in_batch is None else num_items_in_batch / n_processes
            value = loss.total / divisor.clamp(min=torch.finfo(torch.float32).tiny)
            return (value, None) if return_outputs else value

        def evaluation_loop(
            self,
            dataloader: Any,
            description: str,
            prediction_loss_only: bool | None = None,
            ignore_keys: list[str] | None = None,
            metric_key_prefix: str = "eval",
        ) -> Any:
            """Compute the loss over all tokens together, instead of the mean of the batches' means."""
            self.model.eval()
            sums = torch.zeros(2, dtype=torch.float64, device=self.args.device)
            for batch in dataloader:
                with torch.no_grad():
                    found = weighted_loss(self.model, self._prepare_inputs(batch))
                sums += torch.stack([found.total, found.weight]).double()
                self.callback_handler.on_prediction_step(self.args, self.state, self.control)
            total, weight = self.accelerator.reduce(sums, "sum").tolist()
            metrics = {f"{metric_key_prefix}_loss": total / weight if weight else float("nan")}
            if self._player is not None:
                played = self._player(self.accelerator.unwrap_model(self.model))
                metrics[f"{metric_key_prefix}_{RETURN_METRIC}"] = played.mean
                metrics[f"{metric_key_prefix}_{RETURN_METRIC}_error"] = played.standard_error or 0.0
            n_rows = len(dataloader.dataset)
            return output(predictions=None, label_ids=None, metrics=metrics, num_samples=n_rows)

    return WeightedTrainer


_SMALL = 10_000_000
_BLOCK = 128


class Trained(Model):
    """The result of a training."""

    n_steps: int
    """Steps of the optimizer."""
    n_trainable: int
    """Number of trained weights."""
    n_weights: int
    """Number of weights of the model, including the adapter's."""
    train_loss: float
    """Mean loss over the whole training."""
    eval_loss: float | None
    """Validation loss of the kept checkpoint; None without a validation split."""
    episode_return: float | None = None
    """Mean return of the episodes that the kept checkpoint played; None if none were played."""
    episode_return_error: float | None = None
    """Standard error of that mean."""
    best_step: int | None
    """Step of the kept checkpoint; None without a validation split."""
    was_stopped_early: bool
    """Whether early stopping ended the training."""
    per_device_train_batch_size: int
    """Rows in a batch: fewer than requested where memory ran out."""
    seconds: float | None = None
    """Time of the training without loading of the model; None for one that was resumed."""
    tokens_per_s: float | None = None
    """Tokens of rows, without padding, in a second of training, validations included."""
    peak_bytes: int | None = None
    """Peak memory that torch allocated on the first GPU; None on a CPU."""


def train(
    base: str,
    tokens: Path,
    goal: Path,
    recipe: LocalRecipe,
    *,
    validation: Path | None = None,
    workspace: Path,
    player: Callable[[Any], Mean] | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
    on_message: Callable[[str], None] = lambda message: None,
) -> Trained:
    """Train, and save the trained weights.

    A training that was stopped resumes from its last checkpoint in `workspace`, with the same result.

    Args:
        base: Folder or id of the model.
        tokens: Training file of `tokenise`.
        goal: Folder for the adapter, or for the whole model where all weights are trained.
        recipe: Settings of the training.
        validation: Validation file; the checkpoint with the lowest loss on it is kept.
        workspace: Folder for checkpoints.
        player: Plays at each validation; then the checkpoint with the highest return is kept.
        on_step: Called with every loss.
        on_message: Called with other messages.

    Raises:
        RequestError: There is no such model, or this machine cannot train as the recipe says.
        DataError: There are no rows.
        TrainingError: Memory or disk ran out; the message says what to change.
        MissingExtra: torch, transformers or peft is not installed.
    """
    places = _Places(base, tokens, validation, goal, workspace, player)
    return sparing(lambda now: _train(places, now, on_step), recipe, workspace, on_message)


class _Places(NamedTuple):
    base: str
    tokens: Path
    validation: Path | None
    goal: Path
    workspace: Path
    player: Callable[[Any], Mean] | None


def _train(places: _Places, recipe: LocalRecipe, on_step: Callable[[Step], None]) -> Trained:
    if recipe.fsdp:
        begin_sharded()
    model = load_base(places.base, recipe)
    if (
        precision(recipe) != "fp32"
    ):  # autocast converts: peft would store each layer's input again, in 32 bits
        for module in model.modules():
            if hasattr(module, "cast_input_dtype_enabled"):
                module.cast_input_dtype_enabled = False
    n_weights, n_trainable = count(model)
    set_threads(recipe, n_weights)
    shares = recipe.packing and can_share(model.config)
    rows = _rows(places.tokens, recipe, shares=shares)
    if not len(rows):
        raise DataError(f"{places.tokens} has no row", hint="choose more episodes")
    validation = None if places.validation is None else _rows(places.validation, recipe, shares=shares)
    transformers = need("transformers", extra="local")
    has_validation = validation is not None
    most = None if places.player is None else RETURN_METRIC
    padding = model.config.pad_token_id or 0  # any token is valid, since padding has no weight
    arguments = transformers.TrainingArguments(
        **arguments_of(recipe, places.workspace, has_validation=has_validation, most=most),
        ddp_find_unused_parameters=False,
        remove_unused_columns=False,
    )
    if recipe.fsdp:
        shard_on_cpus(arguments)
    trainer = trainer_class()(
        model=model,
        args=arguments,
        player=places.player,
        train_dataset=rows,
        eval_dataset=validation,
        data_collator=functools.partial(
            collate, padding=padding, shares=shares, width=_width(recipe) if shares else 0
        ),
        buckets_seed=recipe.seed if recipe.group_by_length else None,
        callbacks=callbacks_of(recipe, places.workspace, on_step, has_validation=has_validation),
    )
    pace = run_timed(trainer, places.workspace, rows.lengths.sum())
    weights = gathered(trainer.model) if recipe.fsdp else None  # by all processes together
    if trainer.is_world_process_zero():
        trainer.model.save_pretrained(places.goal, state_dict=weights)
    state = trainer.state
    kept = _kept(state)
    return Trained(
        n_steps=state.global_step,
        n_trainable=n_trainable,
        n_weights=n_weights,
        train_loss=mean_loss(state.log_history),
        eval_loss=kept.get("eval_loss"),
        episode_return=kept.get(f"eval_{RETURN_METRIC}"),
        episode_return_error=kept.get(f"eval_{RETURN_METRIC}_error"),
        best_step=state.best_global_step or None,
        was_stopped_early=has_validation and state.global_step < state.max_steps,
        per_device_train_batch_size=recipe.per_device_train_batch_size,
        **pace,
    )


def _kept(state: Any) -> dict[str, float]:
    """Return the validation metrics of the kept checkpoint."""
    at = state.best_global_step
    found = [entry for entry in state.log_history if entry["step"] == at and "eval_loss" in entry]
    return found[-1] if found else {}


def _rows(path: Path, recipe: LocalRecipe, *, shares: bool) -> TokenRows:
    rows = open_tokens(path)
    return rows.packed(pack_rows(rows, recipe.max_length, shares=shares)) if recipe.packing else rows


def _width(recipe: LocalRecipe) -> int:
    """Return the length of all lines: on a GPU kernels are compiled for it, in blocks of 128 tokens."""
    on_gpu = need("torch", extra="local").cuda.is_available()
    return -(-recipe.max_length // _BLOCK) * _BLOCK if on_gpu else 0


def threads(recipe: LocalRecipe, n_weights: int) -> int | None:
    """Return the number of threads: the recipe's, one for a small model, None for torch's own choice."""
    # small models lose more time to synchronisation than threads save
    return recipe.num_threads or (1 if n_weights < _SMALL else None)


def set_threads(recipe: LocalRecipe, n_weights: int) -> None:
    """Set the number of threads."""
    if (n_threads := threads(recipe, n_weights)) is not None:
        need("torch", extra="local").set_num_threads(n_threads)
