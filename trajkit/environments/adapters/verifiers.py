"""Use an environment of trajkit as a taskset and environment of verifiers 0.4 (package `verifiers.v1`).

verifiers finds a taskset by the name of a module that exports it, so a file of two lines makes one;
docs/environments.md has it. The world plays the user: each reply of the model is an action, and the next
observation is the next message.
"""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

from trajkit.environments import typed_environment
from trajkit.environments.adapters.exchange import Exchange, known_tasks

__all__ = ["TextWorlds", "TextWorldsEnv"]

_PROMPT = "Reach the goal, one action at a time. Reply with one action and nothing else."


class TextWorldsConfig(vf.TasksetConfig):
    """The worlds; each field can be set on the command line of verifiers."""

    environment: str = "babyai"
    """A known name, or `my_pkg.env:MyEnv`."""
    tasks: list[str] = []
    """Tasks of the environment; empty for all."""
    first_seed: int = 0
    """Seed of the first world."""
    n_seeds: int = 100
    """Number of worlds per task. Use different ones for training and evaluation."""
    settings: dict[str, str] = {}
    """Settings of the environment, as texts."""


class WorldData(vf.TaskData):
    """One world."""

    world_task: str
    """Task of the environment."""
    seed: int
    """Seed of the world."""


class World(vf.Task[WorldData, vf.State, vf.TaskConfig]):
    """One world; its environment scores it."""


class TextWorlds(vf.Taskset[World, TextWorldsConfig]):
    """The worlds of an environment of trajkit, seed by seed."""

    def load(self) -> Iterator[World]:
        """Yield each task of each seed."""
        config = self.config
        info = typed_environment(config.environment, config.settings)
        prompt = _PROMPT
        if info.rule is not None:
            prompt += f" The actions are: {', '.join(info.rule.actions)}."
        for seed in range(config.first_seed, config.first_seed + config.n_seeds):
            for task in known_tasks(info, config.tasks or None):
                name = f"{info.env_id}/{task}#{seed}"
                data = WorldData(name=name, system_prompt=prompt, world_task=task, seed=seed)
                yield World(data, config.task)


class TextWorldsEnvConfig(vf.EnvConfig):
    """The player. The default is a plain chat in a local process, which runs no code of the model."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())


class TextWorldsEnv(vf.Env[TextWorldsEnvConfig]):
    """Plays a world with a model. The reward is the sum of the environment's rewards."""

    async def run(self, task: World, agents: vf.Agents) -> None:
        """Play one episode, and record its return and the environment's statistics."""
        config = self.taskset.config
        exchange = Exchange(typed_environment(config.environment, config.settings))
        try:
            text = exchange.begin(task.data.world_task, task.data.seed)
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn(text)
                while not segment.terminated:
                    text = exchange.act(segment.last_reply.strip())
                    if exchange.is_over:
                        break
                    segment = await interaction.turn(text)
            interaction.trace.record_reward("episode_return", exchange.total_reward)
            interaction.trace.record_metrics(exchange.statistics())
        finally:
            exchange.close()
