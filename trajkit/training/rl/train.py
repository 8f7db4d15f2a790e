"""Train a model by what it plays: from a base model to a folder with an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trajkit._core.lazy import need
from trajkit.errors import TrainingError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.model import LocalModel
from trajkit.rollouts.records.record import RETURN_METRIC, Played
from trajkit.schema.base import JsonObject
from trajkit.store.dataset import open_dataset
from trajkit.training.local.arguments import arguments_of, mean_loss
from trajkit.training.local.base_model import count, load_base
from trajkit.training.local.outcome.reports import reporters
from trajkit.training.local.running.checkpoint import last_checkpoint
from trajkit.training.local.running.shortage import sparing
from trajkit.training.local.train import Trained, set_threads
from trajkit.training.rl.experience import Lived, lived_of
from trajkit.training.rl.offline import Logged
from trajkit.training.rl.play import Stage
from trajkit.training.rl.recipe import RlRecipe
from trajkit.training.rl.trainer import trainer_class


class RlTrained(Trained):
    """What came out."""

    n_iterations: int
    """Iterations that were learned."""
    best_iteration: int | None
    """After which of them the model that is kept was; None for the last."""
    success: float | None
    """Its share of successes on the held-out seeds; None where there are none."""
    first_success: float | None
    """That of the model at first."""
    stopped: str | None
    """Why it ended early; None where it did not."""


def train_rl(
    base: str,
    goal: Path,
    recipe: RlRecipe,
    *,
    tokenizer: str,
    workspace: Path,
    held_out: frozenset[str] = frozenset(),
    store: Path | None = None,
    tell: Callable[[JsonObject], None] = lambda event: None,
    keep: Callable[[int, Sequence[Played]], None] | None = None,
) -> RlTrained:
    """Play and learn, and save what was trained.

    A run that was stopped goes on from its last checkpoint in `workspace`, to the same result.

    Args:
        base: Folder or id of the model.
        goal: The folder that the adapter (or the whole model, where every weight is trained) is saved in.
        recipe: How.
        tokenizer: Folder or id of the tokenizer.
        workspace: Folder for checkpoints.
        held_out: Initial states of worlds that are kept for evaluation; episodes in them are not learned.
        store: A store of logged episodes to learn in place of playing.
        tell: Is given what happens, as events.
        keep: Is given what each iteration played.

    Raises:
        RequestError: There is no such model, or this machine cannot do what the recipe says.
        TrainingError: Nothing can be learned, the loss is not a number, or memory or disk ran out.
        MissingExtra: torch, transformers or peft is not installed.
    """

    def run(now: RlRecipe) -> RlTrained:
        return _train(base, goal, now, tokenizer, workspace, held_out, store, tell, keep)

    return sparing(run, recipe, workspace, lambda message: tell({"kind": "message", "message": message}))


def _train(
    base: str,
    goal: Path,
    recipe: RlRecipe,
    tokenizer: str,
    workspace: Path,
    held_out: frozenset[str],
    store: Path | None,
    tell: Callable[[JsonObject], None],
    keep: Callable[[int, Sequence[Played]], None] | None,
) -> RlTrained:
    transformers = need("transformers", extra="local")
    model = load_base(base, recipe)
    n_weights, n_trainable = count(model)
    recipe = recipe.of_size(n_weights)
    set_threads(recipe, n_weights)
    arguments = arguments_of(recipe, workspace, has_validation=False)
    arguments |= {
        "save_strategy": "steps",
        "save_steps": recipe.n_updates,
        "logging_steps": recipe.n_updates,
        "save_total_limit": 3,
    }
    measures = bool(recipe.play.eval_seeds)
    if measures:
        arguments |= {
            "eval_strategy": "steps",
            "eval_steps": recipe.n_updates,
            "eval_on_start": True,
            "metric_for_best_model": f"eval_{RETURN_METRIC}",
            "greater_is_better": True,
        }
    template = ChatTemplate(tokenizer)
    stage = Stage(base, recipe, template) if recipe.play.env else None
    logged = None if store is None else Logged(open_dataset(store), template.digest, recipe)
    voice = LocalModel.of(model, template).voice(None)

    def lived(network: Any, iteration: int, held_out: frozenset[str]) -> Lived:
        if logged is not None:
            return logged.lived(iteration, voice)
        assert stage is not None  # without a store there is an environment
        played = stage.attempts(network, iteration)
        if keep is not None:
            keep(iteration, played)
        return lived_of(played, held_out=held_out)

    trainer = trainer_class()(
        model=model,
        args=transformers.TrainingArguments(**arguments, remove_unused_columns=False),
        recipe=recipe,
        source=lived,
        measure=None if stage is None else stage.measured,
        max_staleness=None if store is None else recipe.max_staleness,
        held_out=held_out,
        tell=tell,
        eval_dataset=range(1) if measures else None,
        data_collator=list,
        callbacks=[_evaluations(recipe), *reporters(recipe, workspace.parent)],
    )
    try:
        trainer.train(resume_from_checkpoint=last_checkpoint(workspace))
    finally:
        if stage is not None:
            stage.close()
    return _finished(trainer, recipe, goal, workspace, n_weights, n_trainable)


def _finished(
    trainer: Any, recipe: RlRecipe, goal: Path, workspace: Path, n_weights: int, n_trainable: int
) -> RlTrained:
    state = trainer.state
    # the step in which it was stopped is counted, and changed nothing
    n_done = (state.global_step - (trainer.stopped is not None)) // recipe.n_updates
    best = state.best_global_step or None
    if trainer.stopped is not None and (best is None or best >= n_done * recipe.n_updates):
        best = (n_done - 1) * recipe.n_updates  # the last one that was within bounds
        if best <= 0:
            raise TrainingError(
                f"{trainer.stopped}: no earlier weights are left", hint="a smaller --learning-rate"
            )
    if best is not None and best != state.global_step:
        state.best_model_checkpoint = str(workspace / f"checkpoint-{best}")
        trainer._load_best_model()
    trainer.model.save_pretrained(goal)
    measured = {each["step"]: each for each in state.log_history if "eval_success" in each}
    at = measured.get(best if best is not None else state.global_step, {})
    return RlTrained(
        n_steps=state.global_step,
        n_trainable=n_trainable,
        n_weights=n_weights,
        train_loss=mean_loss(state.log_history),
        eval_loss=None,
        episode_return=at.get(f"eval_{RETURN_METRIC}"),
        best_step=best,
        was_stopped_early=trainer.stopped is not None,
        per_device_train_batch_size=recipe.per_device_train_batch_size,
        n_iterations=n_done,
        best_iteration=None if best is None else best // recipe.n_updates,
        success=at.get("eval_success"),
        first_success=measured.get(0, {}).get("eval_success"),
        stopped=trainer.stopped,
    )


def _evaluations(recipe: RlRecipe) -> Any:
    """Leaves out the measurements between those that the recipe asks for."""
    transformers = need("transformers", extra="local")

    class Evaluations(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            n_done = state.global_step // recipe.n_updates
            if n_done % recipe.eval_every and n_done != recipe.iterations:
                control.should_evaluate = False

    return Evaluations()
