"""Record an expert's actions as prompts and completions of a model that was never called."""

from __future__ import annotations

from trajkit.errors import DataError
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.policies import Choice, Demonstration, Policy, Scripted, Situation
from trajkit.rollouts.prompts.prompt import Prompts, as_asked


class Demonstrated(Scripted):
    """A policy that calls no model, but whose steps can train one.

    Args:
        policy: The policy that acts.
        prompts: Renders the prompts that a model would have seen.
    """

    def __init__(self, policy: Policy, prompts: Prompts) -> None:
        self._policy, self._prompts = policy, prompts

    async def act(self, situation: Situation) -> Choice:
        """Return the action, with the prompt and the completion that names it."""
        choice = await self._policy.act(situation)
        if not isinstance(choice.action, str):
            return choice
        try:
            prompt = self._prompts.of(situation)
        except DataError as error:
            raise Faulty(Fault(FaultKind.REFUSED, shown(error.message), is_lasting=True)) from error
        shows = Demonstration(
            function_name=self._prompts.function_name,
            input=prompt.input,
            messages=as_asked(prompt),
            completion=prompt.answer(choice.action),
            tools=prompt.tools,
        )
        return choice._replace(shows=shows)
