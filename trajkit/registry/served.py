"""How a tuned model is reached: through the gateway, at a server of its own, or by any client."""

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
"""Fields of a variant, and what OpenAI's API calls them."""


class ServedModel(Model):
    """A model that an OpenAI-compatible server answers for."""

    name: Name
    """What the configuration calls it."""
    model_name: Name
    """What the server calls it."""
    api_base: Name
    """The server, such as `http://127.0.0.1:8000/v1/`."""
    api_key_location: Name = "none"
    """Where the gateway finds the key: `none`, or such as `env::MY_KEY`."""
    provider: Name = "server"
    """What the configuration calls the server."""

    def table(self) -> dict[str, Any]:
        """The content of `[models.NAME]`."""
        said = self.model_dump(exclude={"name", "provider"})
        return {"routing": [self.provider], "providers": {self.provider: {"type": "openai", **said}}}

    def check(self) -> None:
        """Refuse what the gateway would.

        Raises:
            RequestError: The name begins as the gateway's own do, or a location is not one.
        """
        if self.name.partition("::")[0] in _RESERVED and "::" in self.name:
            raise RequestError(
                f"the model name {self.name!r} begins with a prefix that the gateway keeps",
                hint="choose another with --name, or leave --api-base out",
            )
        if "@" in self.api_base.partition("://")[2].partition("/")[0]:
            raise RequestError(
                "the address of a model holds a password, and would stand in the configuration with it",
                hint="a server's key: --api-key-location env::MY_KEY",
            )
        if self.api_key_location != "none" and "::" not in self.api_key_location:
            raise RequestError(
                "--api-key-location is where the key is found, and not the key",
                hint="such as env::MY_KEY; none for a server without keys",
            )


def hosted_name(model: str) -> str:
    """A model of a hosted service as the gateway names it.

    Args:
        model: With the provider's prefix, or a name whose form only one provider has.

    Raises:
        RequestError: It could be anybody's.
    """
    prefix, mark, _ = model.partition("::")
    if mark and prefix in PREFIXES:
        return model
    if model.startswith("ft:"):
        return f"openai::{model}"
    if model.startswith("accounts/"):
        return f"fireworks::{model}"
    raise RequestError(f"nobody can tell from {model!r} who answers for it", hint=_NEXT)


def address_of(model: str) -> ServedModel:
    """A model of a hosted service by its address, for those who ask without a gateway.

    Raises:
        RequestError: No address is known.
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
