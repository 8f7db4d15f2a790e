"""The settings that any client of OpenAI's API needs to call a tuned model, with or without a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajkit.registry.served import ServedModel
from trajkit.schema import Model
from trajkit.schema.base import JsonObject, Name

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "stop_sequences": "stop",
    "reasoning_effort": "reasoning_effort",
    "service_tier": "service_tier",
    "verbosity": "verbosity",
}
"""Fields of a variant, and what OpenAI's API calls them."""


class ClientSettings(Model):
    """Where a model answers, and how it is asked."""

    base_url: Name
    """The address of the API."""
    api_key_env: Name | None
    """The environment variable with the key; None where the server wants none."""
    request: JsonObject
    """The fields of every request: `model` and sampling parameters."""


def client_settings(model: ServedModel, template: Mapping[str, Any]) -> ClientSettings:
    """The settings of a client.

    Args:
        model: The model.
        template: The variant whose prompts it was trained on; empty when there is no configuration.
    """
    sampling = {_SAMPLING[name]: value for name, value in template.items() if name in _SAMPLING}
    location = model.api_key_location
    return ClientSettings(
        base_url=model.api_base,
        api_key_env=location.removeprefix("env::") if location.startswith("env::") else None,
        request={"model": model.model_name, **sampling},
    )
