"""Describe how a tuned model is reached: through the gateway, at a separate server, or by any client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.validation.target import HOSTED
from trajkit.schema import Model
from trajkit.schema.base import JsonObject, Name

PREFIXES = (
    "anthropic",
    "deepseek",
    "fireworks",
    "gcp_vertex_anthropic",
    "gcp_vertex_gemini",
    "google_ai_studio_gemini",
    "groq",
    "hyperbolic",
    "mistral",
    "openai",
    "openrouter",
    "together",
    "xai",
)
"""Providers of TensorZero 2026.6.0 whose models need no table: `PREFIX::MODEL` names one."""

_RESERVED = (*PREFIXES, "dummy", "tensorzero")
_NEXT = "such as openai::ft:…, together::…, fireworks::…; --api-base URL for a server of your own"
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
"""Fields of a variant, with their names in OpenAI's API."""


class ServedModel(Model):
    """A model at an OpenAI-compatible server."""

    name: Name
    """Name in the configuration."""
    model_name: Name
    """Name at the server."""
    api_base: Name
    """Address of the server, such as `http://127.0.0.1:8000/v1/`."""
    api_key_location: Name = "none"
    """Where the gateway finds the key: `none`, or a location such as `env::MY_KEY`."""
    provider: Name = "server"
    """Name of the server in the configuration."""

    def table(self) -> dict[str, Any]:
        """Return the content of `[models.NAME]`."""
        fields = self.model_dump(exclude={"name", "provider"})
        return {"routing": [self.provider], "providers": {self.provider: {"type": "openai", **fields}}}

    def check(self) -> None:
        """Refuse values that the gateway would refuse.

        Raises:
            RequestError: The name begins with a prefix of the gateway, the address holds a password, or the
                key's location is invalid.
        """
        if self.name.partition("::")[0] in _RESERVED and "::" in self.name:
            raise RequestError(
                f"the model name {self.name!r} begins with a prefix that the gateway reserves",
                hint="choose another with --name, or leave --api-base out",
            )
        if "@" in self.api_base.partition("://")[2].partition("/")[0]:
            raise RequestError(
                "the address of the model holds a password, which would be written into the configuration",
                hint="give a server's key with --api-key-location env::MY_KEY",
            )
        if self.api_key_location != "none" and "::" not in self.api_key_location:
            raise RequestError(
                "--api-key-location takes the location of the key, not the key itself",
                hint="such as env::MY_KEY; none for a server without keys",
            )


def hosted_name(model: str) -> str:
    """Return the gateway's name of a model of a hosted service.

    Args:
        model: Name with the provider's prefix, or in a form that only one provider uses.

    Raises:
        RequestError: The provider is not clear from the name.
    """
    prefix, mark, _ = model.partition("::")
    if mark and prefix in PREFIXES:
        return model
    if model.startswith("ft:"):
        return f"openai::{model}"
    if model.startswith("accounts/"):
        return f"fireworks::{model}"
    raise RequestError(f"the provider of {model!r} is not clear from its name", hint=_NEXT)


def address_of(model: str) -> ServedModel:
    """Return a model of a hosted service by its address, for clients without a gateway.

    Raises:
        RequestError: The service's address is unknown.
    """
    prefix, _, name = model.partition("::")
    if prefix not in PREFIXES or prefix not in HOSTED:
        raise RequestError(
            f"no OpenAI-compatible address of {prefix} is known", hint=f"--model {name} --api-base URL"
        )
    service = HOSTED[prefix]
    return ServedModel(
        name=model,
        model_name=name,
        api_base=f"{service.url}{service.chat_path}/",
        api_key_location=f"env::{service.key_variable}",
        provider=prefix,
    )


class ClientSettings(Model):
    """Address and request fields for any client."""

    base_url: Name
    """Address of the API."""
    api_key_env: Name | None
    """The environment variable with the key; None if the server needs none."""
    request: JsonObject
    """Fields of every request: `model` and sampling parameters."""


def client_settings(model: ServedModel, template: Mapping[str, Any]) -> ClientSettings:
    """Build the settings of a client.

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
