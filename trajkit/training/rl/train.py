"""Train a model by reinforcement learning: from a base model to a folder with an adapter."""

from __future__ import annotations

import functools
import math
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
from trajkit.training.local.arguments import arguments_of, mean_loss, reporters
from trajkit.training.local.base_model import count, load_base
from trajkit.training.local.running.attempt import last_checkpoint, sparing
from trajkit.training.local.train import Trained, set_threads
from trajkit.training.local.train import trainer_class as weighted_trainer
from trajkit.training.rl.experience import Lived, Watch, experience_of, lived_of, success_of
from trajkit.training.rl.loss import policy_loss, scored
from trajkit.training.rl.offline import Logged
from trajkit.training.rl.play import Stage
from trajkit.training.rl.recipe import RlRecipe
from trajkit.training.rl.round import Networks, Round

_VALUE_HEAD = "value_head.pt"


@functools.cache
def trainer_class() -> type[Any]:
    """Create the trainer class on first use, because its base takes seconds to import."""
    torch = need("torch", extra="local")

    class PlayingTrainer(weighted_trainer()):  # type: ignore[misc]
        """Plays an iteration, then takes optimizer steps on its episodes.

        Episodes and the order of rows depend only on the seed, the iteration and the weights: a run that
        resumes from the checkpoint at the end of an iteration ends with the same weights.
        """

        def __init__(
            self,
            *,
            recipe: RlRecipe,
            source: Callable[[Any, int, frozenset[str]], Lived],
            measure: Callable[[Any], Sequence[Played]] | None,
            max_staleness: float | None,
            held_out: frozenset[str],
            tell: Callable[[dict[str, Any]], None],
            **options: Any,
        ) -> None:
            super().__init__(train_dataset=range(recipe.iterations * recipe.n_updates), **options)
            self._recipe, self._source, self._measure, self._tell = recipe, source, measure, tell
            first = [each.detach().clone() for each in self.model.parameters() if each.requires_grad]
            head = None
            if recipe.algorithm == "ppo":
                head = torch.nn.Linear(self.model.config.get_text_config().hidden_size, 1).to(
                    self.args.device
                )
                torch.nn.init.zeros_(head.weight)
                torch.nn.init.zeros_(head.bias)
            self._networks = Networks(self.model, first, head, self.compute_loss_context_manager)
            self._padding = self.model.config.pad_token_id or 0
            self._held_out, self._max_staleness = held_out, max_staleness
            self._watch = Watch(recipe, tell)
            self.control: Any
            self.stopped: str | None = None
            """Why the training stopped before its last iteration; None if it did not."""

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> None:
            return None

        def create_optimizer(self, model: Any = None) -> Any:
            """Create the optimizer, including the weights of the value head."""
            is_new = self.optimizer is None
            made = super().create_optimizer(model)
            if is_new and (head := self._networks.value_head) is not None:
                made.add_param_group({"params": list(head.parameters()), "weight_decay": 0.0})
            return made

        def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
            super()._save_optimizer_and_scheduler(output_dir)
            if (head := self._networks.value_head) is not None:
                torch.save(head.state_dict(), Path(output_dir) / _VALUE_HEAD)

        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            super()._load_optimizer_and_scheduler(checkpoint)
            if checkpoint is not None and (head := self._networks.value_head) is not None:
                head.load_state_dict(torch.load(Path(checkpoint) / _VALUE_HEAD, weights_only=True))

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            """Take one optimizer step; play before the first step of an iteration."""
            recipe = self._recipe
            iteration, update = divmod(self.state.global_step, recipe.n_updates)
            if update == 0:
                self._begin(iteration)
            total = torch.zeros((), device=self.args.device)
            if self.stopped is not None:
                self.control.should_training_stop = True
                return total
            model.train()
            if (head := self._networks.value_head) is not None:
                head.zero_grad()
            epoch, part = divmod(update, recipe.minibatches)
            minibatch = self._round.minibatch([recipe.seed, iteration, epoch], part)
            for batch in minibatch.batches():
                with self.compute_loss_context_manager():
                    found = scored(model, batch, temperature=recipe.play.temperature, value_head=head)
                    loss = policy_loss(
                        found, batch, recipe, n_rows=len(minibatch.places), n_tokens=minibatch.n_tokens
                    )
                self.accelerator.backward(loss.total)
                total += loss.total.detach()
                self._report["clip_share"] += float(loss.n_clipped)
            self._n_tokens += minibatch.n_tokens
            if not math.isfinite(float(total)):
                raise TrainingError(
                    f"the loss is {float(total)} in step {update + 1} of iteration {iteration + 1}:"
                    f" {self.args.output_dir} has the weights before that iteration",
                    hint=f"a smaller --learning-rate than {recipe.learning_rate:g}",
                )
            self._report["loss"] += float(total) / recipe.n_updates
            if update == recipe.n_updates - 1:
                self._end()
            return total

        def _begin(self, iteration: int) -> None:
            """Play, and compute everything that stays constant while the iteration is learned."""
            self._watch.begin()
            lived = self._source(self.model, iteration, self._held_out)
            self._watch.played(iteration, lived)
            experience = experience_of(lived.traces, self._recipe)
            self.model.eval()  # rows are scored without dropout, as they were sampled
            self._round = Round(
                experience,
                self._networks,
                self._recipe,
                padding=self._padding,
                max_staleness=self._max_staleness,
            )
            measured = self._round.measured
            self._report = self._watch.report
            self._report |= {**measured._asdict(), "clip_share": 0.0, "loss": 0.0}
            self._n_tokens = 0
            self._check(iteration)

        def _check(self, iteration: int) -> None:
            """Stop when the training cannot usefully continue."""
            measured, most = self._round.measured, self._recipe.max_kl
            if not math.isfinite(measured.kl) or not math.isfinite(measured.entropy):
                raise TrainingError(
                    f"the model gives NaN after iteration {iteration}: {self.args.output_dir} has earlier"
                    " weights",
                    hint=f"a smaller --learning-rate than {self._recipe.learning_rate:g}",
                )
            if most is not None and measured.kl > most:
                self.stopped = (
                    f"the KL divergence is {measured.kl:.3g} after {iteration} iterations, above {most:g}"
                )
            self._watch.check(measured.n_learned, measured.n_stale)

        def _end(self) -> None:
            self._report["clip_share"] /= max(1, self._n_tokens)
            report = self._watch.end(self._get_learning_rate())
            self.log({name: value for name, value in report.items() if isinstance(value, float)})

        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            """Play the held-out seeds."""
            assert self._measure is not None  # otherwise there is no evaluation
            played = self._measure(self.model)
            self._held_out |= {one.initial_state_hash for one in played}
            how = success_of(lived_of(played).traces)
            n_done = self.state.global_step // self._recipe.n_updates
            self._tell({"kind": "evaluation", "iteration": n_done, **how._asdict()})
            metrics = {"eval_success": how.success, f"eval_{RETURN_METRIC}": how.episode_return}
            self.log(dict(metrics))
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    return PlayingTrainer


class RlTrained(Trained):
    """The result of a reinforcement learning job."""

    n_iterations: int
    """Number of finished iterations."""
    best_iteration: int | None
    """Iteration after which the kept weights were saved; None for the last."""
    success: float | None
    """Share of successes of the kept model on the held-out seeds; None without held-out seeds."""
    first_success: float | None
    """Share of successes of the initial model."""
    stopped: str | None
    """Why it stopped early; None if it did not."""


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
    """Play and learn, and save the trained weights.

    A training that was stopped resumes from its last checkpoint in `workspace`, with the same result.

    Args:
        base: Folder or id of the model.
        goal: Folder for the adapter, or for the whole model if all weights are trained.
        recipe: Settings of the training.
        tokenizer: Folder or id of the tokenizer.
        workspace: Folder for checkpoints.
        held_out: Initial states of held-out worlds; episodes in them are not learned.
        store: Store of logged episodes to learn from instead of playing.
        tell: Called with each event.
        keep: Called with the episodes of each iteration.

    Raises:
        RequestError: There is no such model, or this machine cannot train as the recipe says.
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
        assert stage is not None  # there is an environment if there is no store
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
    # the step that stopped the training is counted, but changed nothing
    n_done = (state.global_step - (trainer.stopped is not None)) // recipe.n_updates
    best = state.best_global_step or None
    if trainer.stopped is not None and (best is None or best >= n_done * recipe.n_updates):
        best = (n_done - 1) * recipe.n_updates  # the last one with a KL divergence within the limit
        if best <= 0:
            raise TrainingError(
                f"{trainer.stopped}: there are no earlier weights", hint="a smaller --learning-rate"
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
    """Return a callback that skips all evaluations except for those of `eval_every` and the last."""
    transformers = need("transformers", extra="local")

    class Evaluations(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            n_done = state.global_step // recipe.n_updates
            if n_done % recipe.eval_every and n_done != recipe.iterations:
                control.should_evaluate = False

    return Evaluations()
