"""Play with a model that is being trained: groups of attempts at the same seeds, all in lock step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trajkit._core.process.loop import run_to_end
from trajkit._core.seeds import Seeds, as_seeds
from trajkit.environments import typed_environment
from trajkit.environments.load import code_digest
from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.model import LocalModel
from trajkit.rollouts.agent import AgentPolicy
from trajkit.rollouts.agents.load import find_agent
from trajkit.rollouts.agents.turn import Models
from trajkit.rollouts.decoding import Decoding
from trajkit.rollouts.local.endpoint import LocalEndpoint
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.local.policy import Answering, LocalModels, LocalPolicy
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.prompts.variant import VariantOf, VariantPrompts
from trajkit.rollouts.records.record import Played
from trajkit.rollouts.running.calling import Caller
from trajkit.rollouts.running.runner import Pool, play
from trajkit.rollouts.seeds import derived_seed
from trajkit.schema import Purpose
from trajkit.training.rl.recipe import PlayedRecipe, WorldRecipe

_SIDE_BY_SIDE = 256
"""Maximum number of concurrent episodes."""


def player_of(base: str, recipe: WorldRecipe) -> LocalPlayer:
    """Return the model as a player: its prompts, and how its answers are sampled.

    Raises:
        RequestError: There is no such variant, or a value is invalid.
        ConfigError: The configuration is invalid.
    """
    player = LocalPlayer(
        name="policy",
        model=base,
        config=recipe.config or None,
        function=recipe.function or None,
        variant=recipe.variant or None,
        settings={
            "temperature": str(recipe.temperature),
            "top_p": str(recipe.top_p),
            "max_new_tokens": str(recipe.max_new_tokens),
            "json_mode": recipe.json_mode.value,
        },
    )
    if recipe.policy:
        find_agent(recipe.policy, recipe.policy_settings)
        if player.templates is not None:
            raise RequestError("an agent has its own prompts", hint="leave out --config and --variant")
    player.prompts(typed_environment(recipe.env, recipe.env_settings).rule, history=recipe.history)
    return player


def sources_of(world: WorldRecipe) -> dict[str, str]:
    """Return digests of the user's code and prompts that decide what is played, by spec or path."""
    found = {spec: code_digest(spec) for spec in (world.env, world.policy)}
    if world.config:
        which = VariantOf(Path(world.config), world.function, world.variant)
        found[world.config] = VariantPrompts(which, history=world.history).digest
    return {name: digest for name, digest in found.items() if digest is not None}


def check_sources(world: WorldRecipe) -> None:
    """Refuse a job whose code or configuration has changed since its preparation.

    Raises:
        RequestError: The code of an environment or an agent has changed, or a configuration has.
    """
    now = sources_of(world)
    changed = [name for name, digest in world.sources.items() if now.get(name) != digest]
    if changed:
        raise RequestError(
            f"{changed[0]} has changed since this job was prepared",
            hint="undo the change, or run the job's command again, which makes a new job",
        )


class Stage:
    """Plays with the current weights of a model. Its environments stay open until `close`.

    Args:
        base: Folder or id of the model, for its name.
        recipe: What is played, and how the model is called.
        tokenizer: The model's tokenizer.
        answer: Answers prompts if the model is at a service; None for this machine.
    """

    def __init__(
        self, base: str, recipe: PlayedRecipe, tokenizer: ChatTemplate, answer: Answering | None = None
    ) -> None:
        self._recipe, self._answer = recipe, answer
        self._player = player_of(base, recipe.play)
        info = typed_environment(recipe.play.env, recipe.play.env_settings)
        self._rule, self._pool = info.rule, Pool(info.make, _SIDE_BY_SIDE)
        self._tokenizer = tokenizer
        self._seeds = as_seeds(recipe.play.seeds)
        self._model: LocalModel | None = None

    def seeds(self, iteration: int) -> Seeds:
        """Return the seeds of an iteration; after the last seed, the first follows again."""
        n = self._recipe.seeds_per_iteration
        return as_seeds(
            sorted({self._seeds[at % len(self._seeds)] for at in range(iteration * n, iteration * n + n)})
        )

    def attempts(self, network: Any, iteration: int) -> list[Played]:
        """Play the groups of an iteration; the sampling depends on the recipe's seed and the iteration.

        Args:
            network: The model with its current weights; None if it is at a service.
            iteration: From 0.

        Returns:
            The episodes in the order of task, seed and attempt, including those that a fault ended.
        """
        n = self._recipe.num_generations
        draws = {
            f"attempt_{number}": derived_seed("attempt", self._recipe.seed, iteration, number)
            for number in range(n)
        }
        return self._play(network, draws, self.seeds(iteration), Purpose.TRAIN)

    def measured(self, network: Any) -> list[Played]:
        """Play each held-out seed once; the same weights play the same episodes."""
        return self._play(
            network, {"policy": self._recipe.seed}, as_seeds(self._recipe.play.eval_seeds), Purpose.EVAL
        )

    def close(self) -> None:
        """Close the environments."""
        self._pool.close()

    def _play(self, network: Any, draws: Mapping[str, int], seeds: Seeds, purpose: Purpose) -> list[Played]:
        world = self._recipe.play
        plan = Plan(
            env_id=world.env,
            env_name="" if world.env_name == world.env else world.env_name,
            env_settings=world.env_settings,
            tasks=world.tasks,
            variants=tuple(draws),
            seeds=seeds,
            purpose=purpose,
            run_seed=self._recipe.seed,
            history=world.history,
            max_steps=world.max_episode_steps,
            # overrides the agent's own sampling settings: the model learns this distribution
            decodings=(Decoding(temperature=world.temperature, top_p=world.top_p),) if world.policy else (),
            concurrency=min(_SIDE_BY_SIDE, len(seeds) * len(world.tasks) * len(draws)),
        )
        played: list[Played] = []
        run_to_end(self._run(self._asked(network), plan, draws, played))
        return sorted(played, key=lambda one: plan.position(one.job))

    def _asked(self, network: Any) -> LocalModel:
        if network is not None:
            network.eval()
        if self._model is None:
            # the adapter works inside its base, whose signature gives the accepted arguments
            inner = network.get_base_model() if hasattr(network, "get_base_model") else network
            self._model = LocalModel.of(inner, self._tokenizer, name=self._player.found.model)
        self._model.forget()  # cached prompts are of earlier weights
        return self._model

    async def _run(
        self, model: LocalModel, plan: Plan, draws: Mapping[str, int], played: list[Played]
    ) -> None:
        models = LocalModels({self._player.name: model}, self._answer)
        caller = Caller(concurrency=plan.concurrency, timeout_s=plan.timeout_s, retries=0)
        policies = {
            name: self._policy(models, plan.model_copy(update={"run_seed": seed}), caller)
            for name, seed in draws.items()
        }
        try:
            await play(plan, policies, on_played=played.append, pool=self._pool)
        finally:
            for policy in policies.values():
                if isinstance(policy, AgentPolicy):
                    await policy.close()
            await models.end()

    def _policy(self, models: LocalModels, plan: Plan, caller: Caller) -> LocalPolicy | AgentPolicy:
        """Return the policy of the model, or of an agent whose calls the model answers."""
        world = self._recipe.play
        if not world.policy:
            return LocalPolicy(self._player, models, plan, caller, rule=self._rule)

        def asked() -> LocalEndpoint:
            return LocalEndpoint(self._player, models, caller, max_new_tokens=world.max_new_tokens)

        return AgentPolicy(find_agent(world.policy, world.policy_settings), plan, Models(caller, asked))
