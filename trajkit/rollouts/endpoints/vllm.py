"""Use a model behind a vLLM as a policy, with its tokens as they were sampled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import SecretStr

from trajkit.environments.base import ActionRule
from trajkit.rollouts.endpoints.endpoint import Endpoint
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.local.player_policy import PlayerPolicy, as_tool
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Answer, Situation
from trajkit.rollouts.prompts.prompt import Prompt
from trajkit.rollouts.running.calling import Caller

_PLAIN = {"top_k": -1, "min_p": 0, "repetition_penalty": 1}
"""vLLM's own fields, at values without effect: a model's generation_config.json would set them otherwise."""


class VllmEndpoint(Endpoint):
    """A vLLM. One that was started for this run and has ended is not waited for.

    Args:
        url: Its address.
        key: Its key; None for a server without keys.
        caller: Sends the requests, with the limits of the run.
        model: The model for calls that name none.
        ended: Says how it has ended; None while it runs.
    """

    def __init__(
        self,
        url: str,
        key: SecretStr | None,
        caller: Caller,
        *,
        model: str,
        ended: Callable[[], str | None],
    ) -> None:
        super().__init__(url, key, caller, model=model)
        self._ended = ended

    def _faulty(self, kind: FaultKind, reason: str) -> Faulty:
        if kind == FaultKind.CONNECTION and (words := self._ended()) is not None:
            return Faulty(Fault(kind, shown(words), is_lasting=True))
        return super()._faulty(kind, reason)


class VllmPolicy(PlayerPolicy):
    """The policy of one player, whose model is behind a vLLM.

    Args:
        player: Its model, prompts and settings.
        endpoint: The vLLM; the caller closes it.
        plan: Seeds, history and decodings.
        rule: The environment's rule for answers; None when the legal actions depend on the state.

    Raises:
        RequestError: The prompts or a setting are invalid.
        ConfigError: The configuration is invalid.
    """

    def __init__(
        self, player: LocalPlayer, endpoint: VllmEndpoint, plan: Plan, *, rule: ActionRule | None
    ) -> None:
        super().__init__(player, plan, rule)
        self._endpoint = endpoint

    async def answer(self, situation: Situation, prompt: Prompt) -> Answer:
        """Return the model's answer."""
        done = await self._endpoint.complete(self._arguments(situation, prompt))
        extra = dict(done.answer.extra or {})
        if self.prompts.variant_name not in (None, self.player.name):
            extra["prompt_variant"] = self.prompts.variant_name
        return done.answer._replace(
            function_name=self.prompts.function_name,
            variant_name=self.player.name,
            input=prompt.input,
            model_name=self.player.served_as,
            extra=extra,
        )

    def _arguments(self, situation: Situation, prompt: Prompt) -> dict[str, Any]:
        sampling = self.sampling(situation)
        arguments: dict[str, Any] = {
            "messages": list(prompt.messages),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": self.seed(situation),
            "logprobs": True,
            "extra_body": {**_PLAIN, "return_token_ids": True},
        }
        if sampling.stop:
            arguments["stop"] = list(sampling.stop)
        if prompt.json_schema is not None:
            schema = {"name": "answer", "schema": dict(prompt.json_schema)}
            arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
        if prompt.tools is not None:
            arguments["tools"] = [as_tool(tool) for tool in prompt.tools]
            arguments["tool_choice"] = prompt.tool_choice
        return arguments
