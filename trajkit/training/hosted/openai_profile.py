"""Which service speaks OpenAI's fine-tuning API at an address, and the address of a service."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from trajkit.errors import RequestError
from trajkit.formats.validation.target import HOSTED, HostedService
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.wire import checked_address

_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AZURE_VARIABLE = "AZURE_OPENAI_ENDPOINT"
PROFILES = {service.name: service for service in HOSTED.values() if service.api == "openai"}
"""The services that speak it, by name."""
OPENAI, OTHER = PROFILES["openai"], PROFILES["other"]


def address_of(settings: JsonObject) -> tuple[HostedService, str]:
    """Who is meant, and the address of the API.

    Args:
        settings: `profile` and `base_url`; without an address that of the profile, or of the environment
            (`OPENAI_BASE_URL`); without a profile the one whose host it is.

    Raises:
        RequestError: There is no such profile, no address, or it is none.
    """
    name = settings.get("profile")
    if name is not None and name not in PROFILES:
        raise RequestError(f"no profile {name!r}", hint=f"profiles: {', '.join(PROFILES)}")
    profile = None if name is None else PROFILES[str(name)]
    given = settings.get("base_url")
    variable = (profile or OPENAI).url_variable
    if given is None and variable is not None:
        given = os.environ.get(variable) or None
    url = str(given).rstrip("/") if given is not None else _usual(profile or OPENAI)
    host = urlsplit(checked_address(url)).hostname
    return profile or next((each for each in PROFILES.values() if each.is_at(host)), OTHER), url


def _usual(profile: HostedService) -> str:
    """The profile's own address."""
    if profile.url is not None:
        return profile.url
    if profile.name == "azure" and (endpoint := os.environ.get(_AZURE_VARIABLE)):
        return f"{endpoint.rstrip('/')}/openai/v1"
    if profile.name == "bedrock":
        for variable in _REGION_VARIABLES:
            if region := os.environ.get(variable):
                return f"https://bedrock-mantle.{region}.api.aws/v1"
    hints = {
        "azure": f"set {_AZURE_VARIABLE}, or --base-url https://RESOURCE.openai.azure.com/openai/v1",
        "bedrock": f"set {_REGION_VARIABLES[0]}, or --base-url https://bedrock-mantle.REGION.api.aws/v1",
    }
    raise RequestError(
        f"the profile {profile.name} needs an address",
        hint=hints.get(profile.name, f"--base-url URL, or set {profile.url_variable}"),
    )
