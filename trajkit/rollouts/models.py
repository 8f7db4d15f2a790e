"""The model server and the gateway that an agent may call, each opened on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import SecretStr

from trajkit.errors import RequestError
from trajkit.rollouts.calling import Caller
from trajkit.rollouts.endpoint import OPENAI_URL, Completed, Endpoint
from trajkit.rollouts.gateway_calls import Gateway, GatewayCalls, Inferred
from trajkit.schema import Feedback

OpenGateway = Callable[[], Awaitable[Gateway]]
"""Opens a gateway that stays open until the run is over."""


class Models:
    """The models that an agent may ask. Must be closed.

    Args:
        caller: Sends the requests, with the limits of the run.
        url: Address of an OpenAI-compatible server.
        model: The server's model for calls that name none.
        key: The server's key; None without one.
        open_gateway: Opens the gateway when an agent first asks for it; None when there is none to open.
    """

    def __init__(
        self,
        caller: Caller,
        *,
        url: str = OPENAI_URL,
        model: str | None = None,
        key: SecretStr | None = None,
        open_gateway: OpenGateway | None = None,
    ) -> None:
        self._caller = caller
        self._url, self._model, self._key = url, model, key
        self._open_gateway = open_gateway
        self._endpoint: Endpoint | None = None
        self._gateway: GatewayCalls | None = None
        self._opening = asyncio.Lock()

    async def chat(self, arguments: Mapping[str, Any]) -> Completed:
        """Ask the model server; see `Endpoint.complete`.

        Raises:
            RequestError: There is no key for OpenAI's own server, or no model is named.
            MissingExtra: The package `openai` is not installed.
        """
        if self._endpoint is None:
            self._endpoint = Endpoint(self._url, self._key, self._caller, model=self._model)
        return await self._endpoint.complete(arguments)

    async def infer(self, arguments: Mapping[str, Any]) -> Inferred:
        """Ask the gateway; see `GatewayCalls.infer`."""
        return await (await self._calls()).infer(arguments)

    async def log(
        self, episode_id: str, metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> tuple[Feedback, ...]:
        """Log an episode's metrics at the gateway; see `GatewayCalls.log`."""
        return await (await self._calls()).log(episode_id, metrics, tags)

    async def close(self) -> None:
        """Close what was opened here: the connections to the model server."""
        if self._endpoint is not None:
            await self._endpoint.close()

    async def _calls(self) -> GatewayCalls:
        async with self._opening:
            if self._gateway is None:
                if self._open_gateway is None:
                    raise RequestError(
                        "the agent asks a gateway, and there is none",
                        hint="`trajkit up`, or TENSORZERO_GATEWAY_URL, or a database with --config",
                    )
                gateway = await self._open_gateway()
                self._gateway = GatewayCalls(
                    gateway, self._caller, hint="the agent's turn.inference(…) asked for it"
                )
            return self._gateway
