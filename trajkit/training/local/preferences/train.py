"""Train a model on preferences: from tokenised rows to a folder with an adapter."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import DataError
from trajkit.models.generation.weights import old_names
from trajkit.training.job import Step
from trajkit.training.local.arguments import arguments_of, callbacks_of, mean_loss
from trajkit.training.local.base_model import count, load_base
from trajkit.training.local.preferences.recipe import DpoRecipe, KtoRecipe
from trajkit.training.local.running.attempt import run_timed, sparing
from trajkit.training.local.train import Trained, set_threads

_REWARDS = {
    "margin": "rewards/margins",
    "accuracy": "rewards/accuracies",
    "chosen": "rewards/chosen",
    "rejected": "rewards/rejected",
}


class Rewards(NamedTuple):
    """Rewards of the model: its log-probabilities minus the base model's, times beta."""

    n_done: int
    """Steps of the optimizer."""
    is_validation: bool
    """Whether they are of the validation split; otherwise of the training rows since the last report."""
    margin: float | None
    """Mean reward of better minus worse completions: 0 before the training."""
    accuracy: float | None
    """Share of pairs whose better completion has the higher reward; None for `kto`, which has no pairs."""
    chosen: float | None
    """Mean reward of the better completions."""
    rejected: float | None
    """Mean reward of the worse completions."""


class PreferenceTrained(Trained):
    """The result of a preference training."""

    margin: float | None
    """Mean reward of better minus worse completions in the kept validation, or else in the last rows."""
    accuracy: float | None
    """Share of pairs whose better completion has the higher reward there; None for `kto`."""


class _Places(NamedTuple):
    base: str
    tokens: Path
    validation: Path | None
    goal: Path
    workspace: Path
    tokenizer: str


def train_preference(
    base: str,
    tokens: Path,
    goal: Path,
    recipe: DpoRecipe | KtoRecipe,
    *,
    method: str,
    tokenizer: str,
    validation: Path | None = None,
    workspace: Path,
    on_step: Callable[[Step], None] = lambda step: None,
    on_rewards: Callable[[Rewards], None] = lambda rewards: None,
    on_message: Callable[[str], None] = lambda message: None,
) -> PreferenceTrained:
    """Train, and save the trained weights.

    A training that was stopped resumes from its last checkpoint in `workspace`, with the same result.

    Args:
        base: Folder or id of the model.
        tokens: Training file of `tokenise_preferences`.
        goal: Folder for the adapter, or for the whole model where all weights are trained.
        recipe: Settings of the training.
        method: `dpo` or `kto`.
        tokenizer: Folder of the tokenizer of the rows.
        validation: Validation file; the checkpoint with the lowest loss on it is kept.
        workspace: Folder for checkpoints.
        on_step: Called with every loss.
        on_rewards: Called with every margin.
        on_message: Called with other messages.

    Raises:
        RequestError: There is no such model, or this machine cannot train as the recipe says.
        DataError: There are no rows.
        TrainingError: Memory or disk ran out; the message says what to change.
        MissingExtra: torch, transformers, peft or trl is not installed.
    """
    places = _Places(base, tokens, validation, goal, workspace, tokenizer)
    return sparing(
        lambda now: _train(places, now, method, on_step, on_rewards), recipe, workspace, on_message
    )


def _train(
    places: _Places,
    recipe: DpoRecipe | KtoRecipe,
    method: str,
    on_step: Callable[[Step], None],
    on_rewards: Callable[[Rewards], None],
) -> PreferenceTrained:
    transformers = need("transformers", extra="local")
    rows = rows_of(places.tokens)
    if not len(rows):
        raise DataError(f"{places.tokens} has no row", hint="choose more episodes")
    model = load_base(places.base, recipe)
    n_weights, n_trainable = count(model)
    set_threads(recipe, n_weights)
    kept: list[Rewards] = []
    has_validation = places.validation is not None

    def keep(logs: dict[str, Any], n_done: int) -> None:
        kept.append(_rewards(logs, n_done, is_validation="eval_loss" in logs))
        on_rewards(kept[-1])

    arguments = arguments_of(recipe, places.workspace, has_validation=has_validation)
    with old_names():
        trainer = trainer_class(method)(
            model=model,
            args=configuration(method, **arguments, **recipe.method_arguments()),
            train_dataset=rows,
            eval_dataset=None if places.validation is None else rows_of(places.validation),
            processing_class=pretrained(transformers.AutoTokenizer, places.tokenizer),
            data_collator=collator(
                method, padding=model.config.pad_token_id or 0, compares=recipe.loss_type == "kto"
            ),
            callbacks=callbacks_of(
                recipe, places.workspace, on_step, has_validation=has_validation, on_logs=keep
            ),
        )
        pace = run_timed(trainer, places.workspace, n_tokens_of(rows))
    if trainer.is_world_process_zero():
        trainer.model.save_pretrained(places.goal)
    state = trainer.state
    best = _rewards_at(state, kept)
    return PreferenceTrained(
        n_steps=state.global_step,
        n_trainable=n_trainable,
        n_weights=n_weights,
        train_loss=mean_loss(state.log_history),
        eval_loss=state.best_metric,
        best_step=state.best_global_step or None,
        was_stopped_early=has_validation and state.global_step < state.max_steps,
        per_device_train_batch_size=recipe.per_device_train_batch_size,
        margin=best.margin if best else None,
        accuracy=best.accuracy if best else None,
        **pace,
    )


def _rewards(logs: dict[str, Any], n_done: int, *, is_validation: bool) -> Rewards:
    prefix = "eval_" if is_validation else ""
    found = {ours: logs.get(f"{prefix}{theirs}") for ours, theirs in _REWARDS.items()}
    known = {name: value for name, value in found.items() if value is not None and math.isfinite(value)}
    return Rewards(n_done, is_validation, *(known.get(name) for name in _REWARDS))


def _rewards_at(state: Any, kept: list[Rewards]) -> Rewards | None:
    """Return the rewards of the kept checkpoint, or else of the last rows."""
    if state.best_global_step:
        at = [each for each in kept if each.is_validation and each.n_done == state.best_global_step]
        if not at:  # after a resume, an earlier process validated it, and the training state has the logs
            logs = [each for each in state.log_history if "eval_loss" in each]
            at = [
                _rewards(each, each["step"], is_validation=True)
                for each in logs
                if each["step"] == state.best_global_step
            ]
        return at[-1] if at else None
    return kept[-1] if kept else None


EXTRA = "trl"


@functools.cache
def trainer_class(method: str) -> type[Any]:
    """Create the trainer class for `dpo` or `kto` on first use, because its base takes seconds to import."""
    trl = need("trl", extra=EXTRA)
    base = trl.DPOTrainer if method == "dpo" else trl.KTOTrainer

    class TokensTrainer(base):  # type: ignore[misc,valid-type]
        """Takes rows unchanged: it tokenises, cuts and drops nothing, and sends no telemetry."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            if "ref" in getattr(self.model, "peft_config", {}):
                # TRL keeps a copy of the adapter as the reference. A new adapter changes nothing yet, so the
                # model without it is the same reference, and the copy would be saved with every checkpoint
                self.model.delete_adapter("ref")
            # TRL wants a fixed order, because it pairs prompts with other completions beforehand; here
            # `collator` pairs them within each batch, in any order
            self.args.train_sampling_strategy = "random"

        def _prepare_dataset(self, dataset: Any, *rest: Any, **options: Any) -> Any:
            return dataset

        def _send_telemetry(self) -> None:
            pass

        def create_model_card(self, *rest: Any, **options: Any) -> None:
            pass

    return TokensTrainer


def configuration(method: str, **options: Any) -> Any:
    """Return the arguments of a training for TRL's trainer of this method."""
    trl = need("trl", extra=EXTRA)
    return (trl.DPOConfig if method == "dpo" else trl.KTOConfig)(max_length=None, **options)


def collator(method: str, *, padding: int, compares: bool) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """Return a function that builds a batch of rows.

    Args:
        method: `dpo` or `kto`.
        padding: Id of the padding token; any token is valid.
        compares: For `kto`, also give every prompt the completion of the row before it, from which the loss
            estimates how far the model has moved.
    """
    if method == "dpo":
        module = need("trl.trainer.dpo_trainer", extra=EXTRA)
        pairs: Callable[[Sequence[Any]], dict[str, Any]] = module.DataCollatorForPreference(padding)
        return pairs
    collate = need("trl.trainer.kto_trainer", extra=EXTRA).DataCollatorForUnpairedPreference(padding)

    def with_comparisons(rows: Sequence[Any]) -> dict[str, Any]:
        if compares:
            others = [*rows[-1:], *rows[:-1]]
            rows = [
                {**row, "KL_completion_ids": other["completion_ids"]}
                for row, other in zip(rows, others, strict=True)
            ]
        made: dict[str, Any] = collate(rows)
        return made

    return with_comparisons


def rows_of(path: Path) -> Any:
    """Return tokenised rows as a dataset for TRL's trainers, memory-mapped."""
    return need("datasets", extra=EXTRA).Dataset.from_file(str(path))


def n_tokens_of(rows: Any) -> int:
    """Return the tokens that a model reads of such rows: of a pair, the prompt counts twice."""
    of = {
        name: pc.sum(pc.list_value_length(rows.data[name])).as_py()
        for name in rows.column_names
        if name != "label"
    }
    return int(sum(of.values()) + (of["prompt_ids"] if "rejected_ids" in of else 0))
