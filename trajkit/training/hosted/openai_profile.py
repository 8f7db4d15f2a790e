"""Who speaks OpenAI's fine-tuning API, and how each of them differs from OpenAI's own service.

Sources, all read 2026-11: OpenAI's API reference; Azure OpenAI's fine-tuning page and its REST reference of
models; Nebius Token Factory's and Amazon Bedrock's pages about their OpenAI-compatible interfaces.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from trajkit.errors import RequestError
from trajkit.schema.base import JsonObject
from trajkit.training.hosted.service import LISTING_LAG_S
from trajkit.training.hosted.wire import checked_address

URL_VARIABLE, KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AZURE_VARIABLE = "AZURE_OPENAI_ENDPOINT"
MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One of them."""

    name: str
    """What the user calls it."""
    key_variable: str
    """Where its key is. No other's is ever sent to it."""
    rules: str = "openai"
    """Whose rules its rows are checked by."""
    default_model: str | None = None
    """Tuned where nobody says what; None: somebody must."""
    hosts: tuple[str, ...] = ()
    """How the names of its hosts end."""
    has_metadata: bool = True
    """Whether jobs carry words of ours. Without them a job is found again by its file."""
    has_method: bool = True
    """Whether hyperparameters stand in `method`; else at the top, as they did before."""
    parts_from: int = 512 * MB
    """Files of this size and above are sent in parts."""
    listing_lag_s: float = LISTING_LAG_S
    """Seconds within which a new job is listed."""
    note: str | None = None
    """What a user should know before paying."""


OPENAI = Profile(
    name="openai",
    key_variable=KEY_VARIABLE,
    default_model="gpt-4.1-mini-2025-04-14",
    hosts=("api.openai.com",),
    parts_from=64 * MB,
)
OTHER = Profile(name="other", key_variable=KEY_VARIABLE)
_BY_ENVIRONMENT = (OPENAI.name, OTHER.name)
"""Those whose address `OPENAI_BASE_URL` may be."""
PROFILES = {
    profile.name: profile
    for profile in (
        OPENAI,
        Profile(
            name="azure",
            key_variable="AZURE_OPENAI_API_KEY",
            rules="azure",
            default_model="gpt-4.1-mini-2025-04-14",
            hosts=(".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
        ),
        Profile(
            name="nebius",
            key_variable="NEBIUS_API_KEY",
            rules="nebius",
            hosts=("tokenfactory.nebius.com", "studio.nebius.com"),
            has_metadata=False,
            has_method=False,
        ),
        Profile(
            name="bedrock",
            key_variable="AWS_BEARER_TOKEN_BEDROCK",
            hosts=(".api.aws",),
            has_metadata=False,
            note="Bedrock documents this interface for reinforcement fine-tuning alone: it may refuse others",
        ),
        OTHER,
    )
}
"""By name."""


def address_of(settings: JsonObject) -> tuple[Profile, str]:
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
    if given is None and (profile is None or profile.name in _BY_ENVIRONMENT):
        given = os.environ.get(URL_VARIABLE) or None
    url = str(given).rstrip("/") if given is not None else _usual(profile or OPENAI)
    host = urlsplit(checked_address(url)).hostname
    return profile or _at(str(host)), url


def _at(host: str) -> Profile:
    return next((profile for profile in PROFILES.values() if host.endswith(profile.hosts)), OTHER)


def _usual(profile: Profile) -> str:
    """The profile's own address."""
    if profile.name == OPENAI.name:
        return "https://api.openai.com/v1"
    if profile.name == "nebius":
        return "https://api.tokenfactory.nebius.com/v1"
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
        hint=hints.get(profile.name, f"--base-url URL, or set {URL_VARIABLE}"),
    )
