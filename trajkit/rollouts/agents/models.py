"""The model server and the gateway that an agent may call, each opened on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trajkit.errors import RequestError
from trajkit.rollouts.endpoints.endpoint import ChatModels, Completed
from trajkit.rollouts.gateway.calls import Gateway, GatewayCalls, Inferred
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Feedback

OpenGateway = Callable[[], Awaitable[Gateway]]
"""Opens a gateway that stays open until the run is over."""


class Models:
    """The models that an agent may call. Must be closed.

    Args:
        caller: Sends the requests, with the limits of the run.
        open_chat: Opens the models of OpenAI's chat API on first use.
        open_gateway: Opens the gateway on first use; None when there is none.
    """

    def __init__(
        self,
        caller: Caller,
        open_chat: Callable[[], ChatModels],
        *,
        open_gateway: OpenGateway | None = None,
    ) -> None:
        self._caller = caller
        self._open_chat = open_chat
        self._open_gateway = open_gateway
        self._chat: ChatModels | None = None
        self._gateway: GatewayCalls | None = None
        self._opening = asyncio.Lock()

    async def chat(self, arguments: Mapping[str, Any]) -> Completed:
        """Call the model server; see `ChatModels.complete`.

        Raises:
            RequestError: There is no key for OpenAI's own server, or no model is named.
            MissingExtra: The package `openai` is not installed.
        """
        if self._chat is None:
            self._chat = self._open_chat()
        return await self._chat.complete(arguments)

    async def infer(self, arguments: Mapping[str, Any]) -> Inferred:
        """Call the gateway; see `GatewayCalls.infer`."""
        return await (await self._calls()).infer(arguments)

    async def log(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Log an episode's metrics at the gateway; see `GatewayCalls.log`."""
        return await (await self._calls()).log(episode_id, metrics, tags)

    async def close(self) -> None:
        """Close the connections to the model server."""
        if self._chat is not None:
            await self._chat.close()

    async def _calls(self) -> GatewayCalls:
        async with self._opening:
            if self._gateway is None:
                if self._open_gateway is None:
                    raise RequestError(
                        "the agent calls a gateway, and there is none",
                        hint="`trajkit up`, or TENSORZERO_GATEWAY_URL, or a database with --config",
                    )
                gateway = await self._open_gateway()
                self._gateway = GatewayCalls(gateway, self._caller, hint="the agent called turn.inference(…)")
            return self._gateway
