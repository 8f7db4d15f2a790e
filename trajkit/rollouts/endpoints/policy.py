"""Use a model at an OpenAI-compatible address as a policy: with trajkit's own prompt, or behind a vLLM."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field, SecretStr

from trajkit.environments.base import ActionRule
from trajkit.rollouts.decoding import settings_of
from trajkit.rollouts.endpoints.endpoint import Endpoint, Refused
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.local.player import LocalPlayer, PlayerPolicy, as_tool
from trajkit.rollouts.own_prompt import JsonMode, OwnPrompt, OwnPrompts, read_action
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.policies import Answer, Choice, Scripted, Situation
from trajkit.rollouts.prompts.variant import Prompt
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Model


class EndpointSettings(Model):
    """Settings of `--policy-set` with `--policy openai`."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    """Sampling temperature; None leaves it to the server."""
    max_tokens: Annotated[int, Field(ge=1)] = 1024
    """Maximum tokens per answer."""
    json_mode: JsonMode = JsonMode.AUTO
    """How the server constrains the answer to a readable form."""
    thinking: bool = False
    """Ask for a few sentences of reasoning before the action."""
    tokens: bool = False
    """Request token ids and log-probabilities from the server, which vLLM and `trajkit serve` return.
    Completions are then sampled at temperature 1, where none is set, and top-p 1."""


def read_settings(settings: Mapping[str, str]) -> EndpointSettings:
    """Parse the settings.

    Raises:
        RequestError: A setting is unknown, or its value is invalid.
    """
    return settings_of("openai", EndpointSettings, settings)


class EndpointPolicy(Scripted):
    """Calls one model for every action. Keeps nothing between steps; must be closed.

    Args:
        url: Address of the server with its version, such as `https://api.openai.com/v1`.
        model: The model's name there.
        key: The server's key; None for a server without keys.
        plan: Seeds and history.
        caller: Sends the requests, with the limits of the run.
        rule: The environment's rule for answers; None when the legal actions depend on the state.
        settings: Sampling, and the form of the answer.

    Raises:
        RequestError: The URL is invalid, or OpenAI's own and there is no key.
        MissingExtra: The package `openai` is not installed.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: SecretStr | None,
        plan: Plan,
        caller: Caller,
        *,
        rule: ActionRule | None = None,
        settings: EndpointSettings | None = None,
    ) -> None:
        self._endpoint = Endpoint(url, key, caller, model=model)
        self._plan = plan
        self.settings = settings or EndpointSettings()
        self._prompts = OwnPrompts(rule, history=plan.history, thinking=self.settings.thinking)
        self._dialect = _Dialect(self.settings.json_mode)

    async def act(self, situation: Situation) -> Choice:
        """Call the model; repeat the call in another form when the server refuses an option of it."""
        prompt = self._prompts.of(situation)
        while True:
            dialect = self._dialect
            prompt = prompt._replace(mode=dialect.json_mode)
            try:
                done = await self._endpoint.complete(self._arguments(prompt, dialect))
            except Refused as refusal:
                if dialect == self._dialect:  # otherwise another episode has already changed it
                    if (plainer := dialect.without(refusal)) is None:
                        raise
                    self._dialect = plainer
                continue
            return Choice(read_action(done.answer.raw, prompt.actions, prompt.mode), done.answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _arguments(self, prompt: OwnPrompt, dialect: _Dialect) -> dict[str, Any]:
        situation, settings = prompt.situation, self.settings
        arguments: dict[str, Any] = {
            "messages": prompt.messages,
            dialect.limit_name: settings.max_tokens,
        }
        if settings.temperature is not None:
            arguments["temperature"] = settings.temperature
        if settings.tokens:
            arguments.setdefault("temperature", 1)
            arguments |= {"top_p": 1, "logprobs": True, "extra_body": {"return_token_ids": True}}
        if dialect.sends_seed:
            arguments["seed"] = self._plan.inference_seed(situation.job, situation.step_index)
        if (response_format := prompt.response_format()) is not None:
            arguments["response_format"] = response_format
        return arguments


class _Dialect(NamedTuple):
    """The request options that the server accepts, as far as known."""

    wanted: JsonMode
    refused: frozenset[JsonMode] = frozenset()
    limit_name: str = "max_tokens"
    sends_seed: bool = True

    @property
    def json_mode(self) -> JsonMode:
        """The mode to use now."""
        if self.wanted != JsonMode.AUTO:
            return self.wanted
        return next(mode for mode in _MODES if mode not in self.refused)

    def without(self, refusal: Refused) -> _Dialect | None:
        """Return the next dialect to try after a refusal; None when the refusal had another cause."""
        if refusal.status not in (400, 422, 501):
            return None
        text, mode = refusal.fault.message.lower(), self.json_mode
        if self.limit_name == "max_tokens" and "max_completion_tokens" in text:
            return self._replace(limit_name="max_completion_tokens")
        if self.wanted == JsonMode.AUTO and mode != JsonMode.OFF and _SAYS_FORMAT.search(text):
            return self._replace(refused=self.refused | {mode})
        if self.sends_seed and _SAYS_SEED.search(text):
            return self._replace(sends_seed=False)
        return None


_MODES = (JsonMode.SCHEMA, JsonMode.OBJECT, JsonMode.OFF)
_SAYS_FORMAT = re.compile(r"response.?format|json.?schema|json.?object|structured|grammar|guided")
_SAYS_SEED = re.compile(r"\bseed\b")


_PLAIN = {"top_k": -1, "min_p": 0, "repetition_penalty": 1}
"""vLLM's own fields, at values without effect: a model's generation_config.json would set them otherwise."""


class VllmEndpoint(Endpoint):
    """A vLLM server. If it was started for this run and has ended, calls do not wait for it.

    Args:
        url: Its address.
        key: Its key; None for a server without keys.
        caller: Sends the requests, with the limits of the run.
        model: The model for calls that name none.
        ended: Describes how it has ended; None while it runs.
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
