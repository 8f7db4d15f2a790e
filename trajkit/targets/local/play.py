"""A model that is being trained plays episodes, so that the best checkpoint can be chosen by how it acts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._lazy import need
from trajkit._seeds import as_seeds
from trajkit._settings import Reservation
from trajkit.environments import environment_info
from trajkit.errors import RequestError, TrainingError
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.rollout.endpoint_policy import JsonMode, read_action
from trajkit.rollout.gateway_policy import request_input
from trajkit.rollout.plan import Plan
from trajkit.rollout.policies import Choice, Scripted, Situation
from trajkit.rollout.record import RETURN_METRIC, Played
from trajkit.rollout.runner import play
from trajkit.rollout.summary import Mean, Moments
from trajkit.schema import Purpose
from trajkit.sources.tensorzero.render import Renderer
from trajkit.sources.tensorzero.render_snapshots import TemplateSource
from trajkit.targets.local.recipe import PlayRecipe

_SIDE_BY_SIDE = 32


class Stage(NamedTuple):
    """What is played: a recipe whose every field is known."""

    recipe: PlayRecipe
    """Seeds, and how answers are drawn."""
    renderer: Renderer
    """Writes the prompts, as the function's variant does at the gateway."""


def open_stage(recipe: PlayRecipe, reserved: Sequence[Reservation] | None = None) -> Stage:
    """Find what is needed to play.

    Args:
        recipe: With environment, tasks, function and variant.
        reserved: What the project keeps for evaluation, where that is to be checked.

    Raises:
        RequestError: A seed is not reserved, or there is no such environment or task.
        QueryError: The function has no such variant.
        ConfigError: The configuration cannot be used.
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
    source = TemplateSource((), Path(recipe.config))
    source.check([recipe.function], recipe.variant)
    renderer = source.renderer(None, recipe.function, recipe.variant)
    assert renderer is not None  # it was checked
    return Stage(recipe, renderer)


class Player:
    """Plays with a model as it is now.

    Args:
        stage: What is played.
        tokenizer: The model's.
        seed: Of what is drawn: the same model plays the same.
    """

    def __init__(self, stage: Stage, tokenizer: ChatTemplate, *, seed: int) -> None:
        self._stage, self._tokenizer, self._seed = stage, tokenizer, seed

    def __call__(self, model: Any) -> Mean:
        """The mean return of the episodes.

        Raises:
            TrainingError: An episode could not be played.
        """
        torch = need("torch", extra="local")
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

        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.no_grad():  # the training draws what it would have drawn
            torch.manual_seed(self._seed)
            model.eval()
            policy = _ModelPolicy(self._stage, lambda prompts: self._answers(model, prompts))
            asyncio.run(play(plan, {recipe.variant: policy}, on_played=take))
        mean = returns.mean()
        assert mean is not None  # there is a seed
        return mean

    def _answers(self, model: Any, prompts: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
        """What the model answers to each prompt, all of them at once."""
        torch = need("torch", extra="local")
        tokens = [self._tokenizer.prompt(prompt) for prompt in prompts]
        width = max(map(len, tokens))
        stops = sorted(self._tokenizer.stops)
        ids = torch.tensor([[stops[0] if stops else 0] * (width - len(each)) + list(each) for each in tokens])
        seen = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in tokens])
        recipe = self._stage.recipe
        drawn: dict[str, Any] = {"do_sample": False}
        if recipe.temperature:
            drawn = {"do_sample": True, "temperature": recipe.temperature, "top_k": 0, "top_p": 1.0}
        made = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=seen.to(model.device),
            max_new_tokens=recipe.max_new_tokens,
            eos_token_id=stops or None,
            pad_token_id=stops[0] if stops else 0,
            **drawn,
        )
        return [self._tokenizer.decode(answer) for answer in made[:, width:].tolist()]


class _ModelPolicy(Scripted):
    """Asks the model; episodes that wait at the same time are answered at once."""

    def __init__(self, stage: Stage, answers: Callable[[list[list[dict[str, Any]]]], list[str]]) -> None:
        self._stage, self._answers = stage, answers
        self._waiting: list[tuple[list[dict[str, Any]], asyncio.Future[str]]] = []

    async def act(self, situation: Situation) -> Choice:
        """The action that the model names."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        self._waiting.append((self._prompt(situation), future))
        if len(self._waiting) == 1:
            loop.call_soon(self._answer)  # after every episode that is ready has asked too
        return Choice(read_action(await future, (), JsonMode.AUTO))

    def _prompt(self, situation: Situation) -> list[dict[str, Any]]:
        given = request_input(situation, history=self._stage.recipe.history)
        made = self._stage.renderer.prompt(json.dumps(given))
        system = [] if made.system is None else [{"role": "system", "content": made.system}]
        return [*system, *json.loads(made.messages)]

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            answers = self._answers([prompt for prompt, _ in waiting])
        except Exception as error:  # noqa: BLE001 -- it is raised where it was waited for
            for _, future in waiting:
                future.set_exception(error)
            return
        for (_, future), text in zip(waiting, answers, strict=True):
            future.set_result(text)
