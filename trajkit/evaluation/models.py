"""Open the models that answer prompts: of this machine, each base once, or at a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trajkit._core.settings import checked_secret, secret_from_environment
from trajkit.rollouts.endpoints.endpoint import KEY_VARIABLE, ChatModels, Endpoint
from trajkit.rollouts.local.endpoint import LocalEndpoint
from trajkit.rollouts.local.player import LocalPlayer
from trajkit.rollouts.local.policy import LocalModels
from trajkit.rollouts.running.calling import Caller


def chat_models(
    players: Sequence[LocalPlayer], model_url: str | None, caller: Caller
) -> Mapping[str, ChatModels]:
    """Return each player's model by the player's name.

    Args:
        players: The models.
        model_url: The OpenAI-compatible server; None for this machine.
        caller: Sends the requests.

    Raises:
        RequestError: A model cannot be loaded, or the address is invalid.
        MissingExtra: A package is not installed.
    """
    if model_url is None:
        local = LocalModels.open(players)
        return {player.name: _Here(player, local, caller) for player in players}
    url, key = checked_secret(model_url, "--model-url"), secret_from_environment(KEY_VARIABLE)
    address = "" if url is None else url.get_secret_value()
    return {
        player.name: Endpoint(address, key, caller, model=player.model, is_only=True) for player in players
    }


class _Here(LocalEndpoint):
    """A model of this machine, which is released with the endpoint."""

    async def close(self) -> None:
        await self._models.close()
