"""Play with a model of this machine, wherever it runs: its prompts, its sampling and its actions."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from trajkit.environments.base import ActionRule
from trajkit.errors import DataError
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Answer, Choice, Scripted, Situation
from trajkit.rollouts.prompts.prompt import Prompt, Prompts
from trajkit.rollouts.prompts.variant import Sampling
from trajkit.rollouts.seeds import derived_seed
from trajkit.schema.base import JsonObject


class PlayerPolicy(Scripted, abc.ABC):
    """The policy of one player.

    Args:
        player: Its model, prompts and settings.
        plan: Seeds, history and decodings.
        rule: The environment's rule for answers; None when the legal actions depend on the state.

    Raises:
        RequestError: The prompts or a setting are invalid.
        ConfigError: The configuration is invalid.
    """

    def __init__(self, player: LocalPlayer, plan: Plan, rule: ActionRule | None) -> None:
        self.player = player
        self.prompts: Prompts = player.prompts(rule, history=plan.history)
        self._plan = plan
        self._sampling = player.sampling(self.prompts)

    @abc.abstractmethod
    async def answer(self, situation: Situation, prompt: Prompt) -> Answer:
        """Return the model's answer to a prompt, with its completion.

        Raises:
            Faulty: The model failed, or refuses the request.
        """

    async def act(self, situation: Situation) -> Choice:
        """Return the model's action."""
        try:
            prompt = self.prompts.of(situation)
        except DataError as error:
            raise Faulty(Fault(FaultKind.REFUSED, shown(error.message), is_lasting=True)) from error
        answer = await self.answer(situation, prompt)
        assert answer.completion is not None
        return Choice(prompt.action(answer.completion), answer)

    def sampling(self, situation: Situation) -> Sampling:
        """Return the sampling of this answer: the plan's where it is fixed, otherwise the player's."""
        fixed = self._plan.decoding(situation.job)
        sampling = self._sampling
        if fixed.temperature is not None:
            sampling = sampling._replace(temperature=fixed.temperature)
        return sampling if fixed.top_p is None else sampling._replace(top_p=fixed.top_p)

    def seed(self, situation: Situation) -> int:
        """Return the seed of this answer."""
        job = situation.job
        return derived_seed("inference", self._plan.run_seed, job.task, job.seed, situation.step_index)


def as_tool(tool: JsonObject) -> Mapping[str, object]:
    """Return a tool of the store in OpenAI's form."""
    return {"type": "function", "function": tool}
