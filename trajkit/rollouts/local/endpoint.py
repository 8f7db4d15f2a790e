"""Answer an agent's calls with a local model: waiting episodes are answered in one batch."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trajkit._core.ids import uuid7
from trajkit.errors import RequestError
from trajkit.formats.chat.request import request_of
from trajkit.models.serving.chat_answer import Answer
from trajkit.models.serving.chat_request import ChatRequest, refusal_of
from trajkit.rollouts.endpoints.endpoint import ChatModels, Completed, Refused, Sent, request_options
from trajkit.rollouts.faults import Fault, FaultKind, Faulty, shown
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.local.policy import LocalModels
from trajkit.rollouts.running.calling import Caller

_NEW_TOKENS = 1024
"""Maximum tokens per answer unless a call sets a limit, as in `trajkit serve`."""


class LocalEndpoint(ChatModels):
    """A player's model with the interface of a server, without HTTP.

    Args:
        player: The player.
        models: The models of all players; the caller closes them.
        caller: Sends the requests, with the limits of the run.
        max_new_tokens: Maximum tokens per answer if a call sets no limit.

    Raises:
        MissingExtra: The package `openai` is not installed.
    """

    def __init__(
        self,
        player: LocalPlayer,
        models: LocalModels,
        caller: Caller,
        *,
        max_new_tokens: int = _NEW_TOKENS,
    ) -> None:
        super().__init__("this process", caller, model=player.served_as, is_only=True)
        self._player, self._models, self._max_new_tokens = player, models, max_new_tokens

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def _called(self, attempt: Callable[[], Awaitable[Completed]]) -> Completed:
        """Wait for the answer without a timeout: no other server could answer."""
        self._caller.budget.begin_call()
        try:
            return await attempt()
        finally:
            self._caller.budget.end_call()

    async def _sent(self, wanted: dict[str, Any]) -> Sent:
        try:
            asked = {name: wanted.get(name) for name in ("messages", "tools")} | request_options(wanted)
            request = request_of(ChatRequest, _written({**asked, "model": self._player.found.model}))
            (ask,) = request.asks(max_new_tokens=self._max_new_tokens)
            said = await self._models.ask(self._player, ask)
        except RequestError as error:
            refusal = refusal_of(error)
            fault = Fault(FaultKind.REFUSED, shown(f"{self.model}: {refusal.message}"), is_lasting=True)
            raise Refused(fault, refusal.status) from error
        answer = Answer(
            self._models.voice(self._player), answer_id=f"chatcmpl-{uuid7()}", created_at_s=int(time.time())
        )
        content = _written({**answer.whole([said]), "model": self.model})
        completion = self._openai.types.chat.ChatCompletion
        return Sent(content, lambda: completion.model_validate_json(content), said.sampled)

    def _faulty(self, kind: FaultKind, reason: str) -> Faulty:
        return Faulty(Fault(kind, shown(f"the model {self.model} failed: {reason}"), is_lasting=True))


def _written(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()
