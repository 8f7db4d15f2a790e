"""Create the policies of a session, and keep the gateway open while they play."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from pydantic import SecretStr

from trajkit._core.settings import checked_secret, secret_from_environment
from trajkit.environments import typed_environment
from trajkit.errors import RequestError
from trajkit.rollouts.gateway.calls import Gateway
from trajkit.rollouts.gateway.venue import check_metrics, open_venue
from trajkit.rollouts.gateway_policy import GatewayPolicy
from trajkit.rollouts.options import Options, PolicyKind
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.players import Demonstrated, demonstrated_prompts
from trajkit.rollouts.policies import Expert, NoisyExpert, Policy, Random
from trajkit.rollouts.running.calling import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from trajkit.environments.base import ActionRule
    from trajkit.rollouts.agents.turn import OpenGateway
    from trajkit.rollouts.endpoints.endpoint import ChatModels, Endpoint
    from trajkit.rollouts.local.player import LocalPlayer
    from trajkit.rollouts.local.policy import LocalModels
    from trajkit.rollouts.preparation import Session

DEFAULT_NOISE = 0.3


class Cast:
    """The policies of one run.

    Args:
        session: The options and the venue.
        plan: The episodes to play.
        caller: Sends the requests of all policies.
        stack: Closes everything that is opened here.
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        caller: Caller,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self._session = session
        self._options = session.options
        self._plan = plan
        self._venue = session.venue
        self._caller = caller
        self._stack = stack
        self._gateway: Gateway | None = None

    async def policies(self) -> dict[str, Policy]:
        """Create every policy, by its name in the plan.

        Raises:
            RequestError: A policy cannot be created as requested.
            ServiceError: The gateway cannot be opened.
        """
        plan = self._plan
        if self._options.kind == PolicyKind.GATEWAY:
            gateway, function_name = await self.gateway(), self._session.function_name or ""
            return {
                variant: GatewayPolicy(
                    gateway, plan, self._caller, function_name=function_name, variant_name=variant
                )
                for variant in plan.variants
            }
        if self._options.kind == PolicyKind.LOCAL:
            return self._local_policies()
        if self._options.kind == PolicyKind.VLLM:
            return {player.name: self._vllm_policy(player) for player in self._session.players}
        if self._session.players:
            return self._agent_with_each_model()
        return {plan.variants[0]: self._policy()}

    async def gateway(self) -> Gateway:
        """Return the gateway, which is opened on first use.

        Raises:
            ServiceError: It cannot be opened.
        """
        if self._gateway is None:
            assert self._venue is not None
            self._gateway = await self._stack.enter_async_context(open_venue(self._venue))
        return self._gateway

    @property
    def opened_gateway(self) -> Gateway | None:
        """The gateway, if it was opened."""
        return self._gateway

    @property
    def _rule(self) -> ActionRule | None:
        """The environment's rule for answers."""
        return typed_environment(self._plan.env_id, self._plan.env_settings).rule

    def _policy(self) -> Policy:
        options, run_seed = self._options, self._plan.run_seed
        match options.kind:
            case PolicyKind.EXPERT:
                return self._demonstrated(Expert())
            case PolicyKind.RANDOM:
                return Random(run_seed)
            case PolicyKind.NOISY_EXPERT:
                noise = DEFAULT_NOISE if options.noise is None else options.noise
                return self._demonstrated(NoisyExpert(run_seed, noise))
            case PolicyKind.HUMAN:
                from trajkit.rollouts.agents.human import Human

                return Human()
            case PolicyKind.OPENAI:
                return self._endpoint_policy()
            case _:
                return self._agent()

    def _demonstrated(self, policy: Policy) -> Policy:
        history = self._plan.history
        prompts = demonstrated_prompts(self._session.templates, self._rule, history=history)
        return Demonstrated(policy, prompts)

    def _local_policies(self) -> dict[str, Policy]:
        from trajkit.rollouts.local.policy import LocalPolicy

        models, rule = self._local_models(), self._rule
        return {
            player.name: LocalPolicy(player, models, self._plan, self._caller, rule=rule)
            for player in self._session.players
        }

    def _vllm_policy(self, player: LocalPlayer) -> Policy:
        from trajkit.rollouts.endpoints.policy import VllmEndpoint, VllmPolicy

        url = self._options.model_url
        if url is None:
            raise RequestError("no vLLM was started for this rollout", hint="--model-url names one")
        ended = self._session.server_ended
        endpoint = VllmEndpoint(url, model_key(), self._caller, model=player.served_as, ended=ended)
        self._stack.push_async_callback(endpoint.close)
        return VllmPolicy(player, endpoint, self._plan, rule=self._rule)

    def _local_models(self) -> LocalModels:
        from trajkit.rollouts.local.policy import LocalModels

        models = LocalModels.open(self._session.players)
        self._stack.push_async_callback(models.close)
        return models

    def _endpoint_policy(self) -> Policy:
        from trajkit.rollouts.endpoints.policy import EndpointPolicy, read_settings

        policy = EndpointPolicy(
            model_url(self._options),
            self._options.model or "",
            model_key(),
            self._plan,
            self._caller,
            rule=self._rule,
            settings=read_settings(self._options.policy_settings),
        )
        self._stack.push_async_callback(policy.close)
        return policy

    def _agent(self) -> Policy:
        return self._agent_asking(
            lambda: self._endpoint(self._options.model),
            None if self._venue is None else self._gateway_of_agent,
        )

    def _agent_with_each_model(self) -> dict[str, Policy]:
        """Create an agent for each player; it may call only that player's model."""
        from trajkit.rollouts.local.endpoint import LocalEndpoint

        local = None if self._options.model_url is not None else self._local_models()

        def open_chat(player: LocalPlayer) -> ChatModels:
            if local is None:
                return self._endpoint(player.model, is_only=True)
            return LocalEndpoint(player, local, self._caller)

        return {
            player.name: self._agent_asking(functools.partial(open_chat, player), self._no_gateway)
            for player in self._session.players
        }

    def _endpoint(self, model: str | None, *, is_only: bool = False) -> Endpoint:
        from trajkit.rollouts.endpoints.endpoint import Endpoint

        return Endpoint(model_url(self._options), model_key(), self._caller, model=model, is_only=is_only)

    def _agent_asking(self, open_chat: Callable[[], ChatModels], open_gateway: OpenGateway | None) -> Policy:
        from trajkit.rollouts.agent import AgentPolicy
        from trajkit.rollouts.agents.load import find_agent
        from trajkit.rollouts.agents.turn import Models

        models = Models(self._caller, open_chat, open_gateway=open_gateway)
        make = find_agent(self._options.policy, self._options.policy_settings)
        policy = AgentPolicy(make, self._plan, models)
        self._stack.push_async_callback(policy.close)
        return policy

    async def _no_gateway(self) -> Gateway:
        raise RequestError(
            "the agent calls a function of a gateway, but its models are evaluated one by one",
            hint="this needs an agent that calls models through turn.chat(…)",
        )

    async def _gateway_of_agent(self) -> Gateway:
        """Open the gateway for an agent that may call one.

        Raises:
            ConfigError: The gateway would refuse the feedback at the end of the agent's episodes.
            ServiceError: It cannot be opened.
        """
        assert self._venue is not None
        check_metrics(self._venue, self._session.metrics)
        return await self.gateway()


def model_url(options: Options) -> str:
    """Return the address of the OpenAI-compatible server: the option, OPENAI_BASE_URL, or OpenAI's own."""
    from trajkit.rollouts.endpoints.endpoint import OPENAI_URL

    url = (
        checked_secret(options.model_url, "--model-url")
        if options.model_url
        else secret_from_environment("OPENAI_BASE_URL")
    )
    return url.get_secret_value() if url else OPENAI_URL


def model_key() -> SecretStr | None:
    """Return the key for the OpenAI-compatible server; None if there is none."""
    from trajkit.rollouts.endpoints.endpoint import KEY_VARIABLE

    return secret_from_environment(KEY_VARIABLE)
