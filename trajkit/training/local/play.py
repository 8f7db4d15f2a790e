"""Play episodes with a model during its training, to select the best checkpoint by its return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.process.loop import run_to_end
from trajkit._core.seeds import as_seeds
from trajkit._core.settings import Reservation
from trajkit.environments import environment_info
from trajkit.errors import RequestError, TrainingError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask, Said
from trajkit.models.generation.generate import generate
from trajkit.models.generation.model import LocalModel
from trajkit.rollouts.local.lockstep import LockStep
from trajkit.rollouts.own_prompt import JsonMode
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Choice, Scripted, Situation
from trajkit.rollouts.prompts.variant import VariantOf, VariantPrompts
from trajkit.rollouts.records.record import RETURN_METRIC, Played
from trajkit.rollouts.records.summary import Mean, Moments
from trajkit.rollouts.running.runner import play
from trajkit.rollouts.seeds import derived_seed
from trajkit.schema import Message, Purpose, Role, TextBlock
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect
from trajkit.store.reader import verify
from trajkit.store.view import create_views
from trajkit.training.local.recipe import PlayRecipe
from trajkit.training.origin import Origin

_SIDE_BY_SIDE = 32


class Stage(NamedTuple):
    """The environment and prompts of the episodes."""

    recipe: PlayRecipe
    """Settings with every field filled in."""
    prompts: VariantPrompts
    """Renders the prompts as the function's variant does at the gateway."""


def open_stage(recipe: PlayRecipe, reserved: Sequence[Reservation] | None = None) -> Stage:
    """Prepare the environment and prompts.

    Args:
        recipe: Settings with environment, tasks, function and variant.
        reserved: The project's reservations, to check the seeds; None for no check.

    Raises:
        RequestError: A seed is not reserved, or there is no such environment, task, function or variant.
        ConfigError: The configuration is invalid.
        MissingExtra: The environment's package or minijinja is not installed.
    """
    seeds = as_seeds(recipe.seeds)
    for task in recipe.tasks:
        environment_info(recipe.env).make(task).close()
        kept = [each.seeds for each in reserved or () if each.env == recipe.env and task in each.tasks]
        if reserved is None:
            continue
        free = next((seed for seed in seeds if not any(seed in set(some) for some in kept)), None)
        if free is not None:
            raise RequestError(
                f"seed {free} of {recipe.env} {task} is not reserved, so that episodes of it may be learned",
                hint=f"trajkit reserve {recipe.env} --seeds {recipe.seeds}",
            )
    which = VariantOf(Path(recipe.config), recipe.function, recipe.variant)
    # answers are parsed as the function does, but not constrained: this shows what the model has learned
    return Stage(recipe, VariantPrompts(which, history=recipe.history, mode=JsonMode.OFF))


class Player:
    """Plays with the current weights of a model.

    Args:
        stage: Environment and prompts.
        tokenizer: The model's tokenizer.
        seed: Seed of the sampling: equal weights play equal episodes.
    """

    def __init__(self, stage: Stage, tokenizer: ChatTemplate, *, seed: int) -> None:
        self._stage, self._tokenizer, self._seed = stage, tokenizer, seed

    def __call__(self, model: Any) -> Mean:
        """Return the mean return of the episodes.

        Raises:
            TrainingError: An episode could not be played.
        """
        recipe = self._stage.recipe
        plan = Plan(
            env_id=recipe.env,
            tasks=recipe.tasks,
            variants=(recipe.variant,),
            seeds=as_seeds(recipe.seeds),
            purpose=Purpose.EVAL,
            run_seed=self._seed,
            history=recipe.history,
            concurrency=_SIDE_BY_SIDE,
        )
        returns = Moments()

        def take(played: Played) -> None:
            if played.fault is not None:
                raise TrainingError(f"an episode could not be played: {played.fault.message}")
            returns.add(played.metrics[RETURN_METRIC])

        model.eval()
        # use the base network, whose signature gives the accepted arguments; the adapter works inside it
        network = model.get_base_model() if hasattr(model, "get_base_model") else model
        here = LocalModel.of(network, self._tokenizer)
        run_to_end(self._play(plan, here, take))
        mean = returns.mean()
        assert mean is not None  # there is a seed
        return mean

    async def _play(self, plan: Plan, model: LocalModel, take: Callable[[Played], None]) -> None:
        lock_step: LockStep[Ask, Said] = LockStep(lambda asks: generate(model, asks))
        try:
            policy = _ModelPolicy(self._stage, lock_step, self._seed)
            await play(plan, {plan.variants[0]: policy}, on_played=take)
        finally:
            await lock_step.close()


class _ModelPolicy(Scripted):
    """Calls the model; episodes that wait at the same time are answered together."""

    def __init__(self, stage: Stage, lock_step: LockStep[Ask, Said], seed: int) -> None:
        self._stage, self._lock_step, self._seed = stage, lock_step, seed

    async def act(self, situation: Situation) -> Choice:
        """Return the model's action."""
        job, recipe = situation.job, self._stage.recipe
        prompt = self._stage.prompts.of(situation)
        said = await self._lock_step.ask(
            Ask(
                prompt.messages,
                max_new_tokens=recipe.max_new_tokens,
                temperature=recipe.temperature,
                seed=derived_seed("inference", self._seed, job.task, job.seed, situation.step_index),
            )
        )
        answer = Message(role=Role.ASSISTANT, content=(TextBlock(text=said.text),))
        return Choice(prompt.action(answer))


def staged(recipe: PlayRecipe, train: Dataset, origin: Origin) -> PlayRecipe:
    """Return the recipe with environment, tasks, function and variant; missing ones come from the store.

    Raises:
        RequestError: The store has none, or several to choose from.
    """
    verify(train.store)
    with connect() as connection:
        create_views(connection, train.store)
        worlds = connection.execute(
            "SELECT env_id, list_sort(list(DISTINCT task)) FROM episodes"
            " WHERE env_id IS NOT NULL GROUP BY ALL"
        ).fetchall()
    tasks = {env: tuple(task for task in found if task is not None) for env, found in worlds}
    env = recipe.env or _only(tuple(tasks), "environment", "play.env")
    if not recipe.config:
        raise RequestError(
            "the model plays with the prompts of a gateway's function, but there is no configuration",
            hint="--set play.config=tensorzero.toml, or config in trajkit.toml",
        )
    return recipe.model_copy(
        update={
            "env": env,
            "tasks": recipe.tasks or tasks.get(env, ()),
            "config": str(Path(recipe.config).resolve()),
            "function": recipe.function or _only(origin.functions, "function", "play.function"),
            "variant": recipe.variant or _only(origin.variants, "variant", "play.variant"),
        }
    )


def _only(names: tuple[str, ...], noun: str, field: str) -> str:
    if len(names) == 1:
        return names[0]
    known = f"it has {', '.join(names)}: --set {field}={names[0]}" if names else f"--set {field}=…"
    raise RequestError(f"the {noun} to play is not clear from the store", hint=known)
