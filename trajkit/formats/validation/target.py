"""Targets of training files: the limits of their rows, and for a hosted service its address and its key.

This is the only file with such facts. Sources, all read 2026-11: OpenAI's API reference, its fine-tuning and
vision guides and its published row schema; Azure OpenAI's fine-tuning page and its REST reference of models;
the `together` SDK 3.1.1 (`lib/constants.py`); Fireworks' dataset page; Nebius Token Factory's and Amazon
Bedrock's pages about fine-tuning over OpenAI's API; TRL 1.16.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from trajkit._core.memo import Memo
from trajkit.errors import RequestError
from trajkit.formats.chat.openai_rules import MIN_ROWS

MB = 1_000_000


class Bom(StrEnum):
    """Whether a file must begin with the three bytes of a UTF-8 byte order mark, or must not."""

    REFUSED = "refused"
    WANTED = "wanted"


class Shape(StrEnum):
    """A kind of row, by its keys."""

    CHAT = "messages"
    PREFERENCE = "input, preferred_output and non_preferred_output"
    COMPLETION = "prompt and completion"
    CHOSEN = "chosen and rejected"
    JUDGED = "prompt, completion and label"
    START = "prompt, environment, task and seed"
    TEXT = "text"
    TOKENS = "input_ids"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The rows that a service or a trainer accepts."""

    name: str
    """Its name for users."""
    shapes: tuple[Shape, ...] = (Shape.CHAT, Shape.PREFERENCE)
    """The kinds of rows that it accepts; if several fit, the first counts."""
    min_rows: int = 1
    """Minimum rows per file."""
    max_rows: int | None = None
    """Maximum rows per file; None if unknown."""
    max_bytes: int | None = None
    """Largest size of a file; None if unknown."""
    bom: Bom = Bom.REFUSED
    """Whether it refuses or requires a byte order mark."""
    arguments: Literal["text", "object"] = "text"
    """How the arguments of a tool call are written."""
    has_message_weights: bool = True
    """Whether it uses `weight` of an assistant message, 0 or 1."""
    has_row_weights: bool = False
    """Whether a row may have a `weight` of its own."""
    takes_extra_keys: bool = False
    """Whether unknown keys are ignored instead of refused."""
    must_alternate: bool = False
    """Whether user and assistant must alternate."""
    has_thoughts: bool = False
    """Whether it accepts `reasoning_content` of an assistant message."""
    refuses_special_tokens: bool = True
    """Whether it refuses a text with a token such as <|im_start|>."""
    max_images: int | None = None
    """Maximum images per row; None if it accepts none."""
    max_image_rows: int | None = None
    """Maximum rows with images."""
    suffix_has_dots: bool = True
    """Whether the suffix of the tuned model's name may have dots."""
    flawless: Memo[bool] | None = field(default=None, compare=False, repr=False)
    """The latest messages without flaws, where rows repeat those of the row before; None checks each."""

    @property
    def needs_call_ids(self) -> bool:
        """Whether calls and their results need ids; chat templates pair them by their order."""
        return self.arguments == "text"


@dataclass(frozen=True, kw_only=True)
class HostedService:
    """A service that tunes models: its address, the place of its key, and the peculiarities of its API."""

    name: str
    """Its name for users, and for the gateway (`NAME::MODEL`)."""
    rows: Target
    """The rows that it accepts."""
    key_variable: str
    """Environment variable with its key. No other key is ever sent to it."""
    api: str = "openai"
    """Module of `trajkit.training.hosted` for its API."""
    url: str | None = None
    """Address of the API; None if each account or region has its own."""
    url_variable: str | None = None
    """Environment variable for another address."""
    hosts: tuple[str, ...] = ()
    """Ends of the names of its hosts."""
    chat_path: str = ""
    """Path of its chat API under `url`."""
    keys_at: str = ""
    """The page where keys are created."""
    default_model: str | None = None
    """The model that is tuned by default; None if the user must name one."""
    has_metadata: bool = True
    """Whether jobs carry metadata. Without it a job is recognised by its file."""
    has_method: bool = True
    """Whether hyperparameters are in `method` of OpenAI's API; else at the top level, as formerly."""
    parts_from: int = 512 * MB
    """Files from this size on are sent in parts, over OpenAI's API."""
    note: str | None = None
    """A note for the user before paying."""

    def is_at(self, host: str | None) -> bool:
        """Whether a host is one of its own."""
        return (host or "").endswith(self.hosts)


# 512 MB in one request, and more in parts, as `trajkit sft openai` sends it
_OPENAI = Target(name="openai", min_rows=MIN_ROWS, max_bytes=8_000 * MB, max_images=10, max_image_rows=50_000)
HOSTED = {
    service.name: service
    for service in (
        HostedService(
            name="openai",
            rows=_OPENAI,
            key_variable="OPENAI_API_KEY",
            url="https://api.openai.com/v1",
            url_variable="OPENAI_BASE_URL",
            hosts=("api.openai.com",),
            default_model="gpt-4.1-mini-2025-04-14",
            parts_from=64 * MB,
        ),
        HostedService(
            name="azure",
            rows=Target(
                name="azure",
                min_rows=MIN_ROWS,
                max_bytes=512 * MB,
                bom=Bom.WANTED,
                max_images=64,
                max_image_rows=50_000,
                suffix_has_dots=False,
            ),
            key_variable="AZURE_OPENAI_API_KEY",
            hosts=(".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
            default_model="gpt-4.1-mini-2025-04-14",
        ),
        HostedService(
            name="nebius",
            rows=Target(
                name="nebius",
                shapes=(Shape.CHAT, Shape.COMPLETION),
                max_bytes=5_000 * MB,
                has_message_weights=False,
            ),
            key_variable="NEBIUS_API_KEY",
            url="https://api.tokenfactory.nebius.com/v1",
            hosts=("tokenfactory.nebius.com", "studio.nebius.com"),
            has_metadata=False,
            has_method=False,
        ),
        HostedService(
            name="bedrock",
            rows=_OPENAI,
            key_variable="AWS_BEARER_TOKEN_BEDROCK",
            hosts=(".api.aws",),
            has_metadata=False,
            note="Bedrock documents this interface for reinforcement fine-tuning alone: it may refuse others",
        ),
        # any other service with OpenAI's API
        HostedService(
            name="other", rows=_OPENAI, key_variable="OPENAI_API_KEY", url_variable="OPENAI_BASE_URL"
        ),
        HostedService(
            name="together",
            rows=Target(
                name="together",
                shapes=(Shape.CHAT, Shape.PREFERENCE, Shape.COMPLETION, Shape.TEXT),
                max_bytes=50_100 * MB,
                must_alternate=True,
                has_thoughts=True,
                refuses_special_tokens=False,
                max_images=10,
            ),
            key_variable="TOGETHER_API_KEY",
            api="together",
            url="https://api.together.ai",
            url_variable="TOGETHER_BASE_URL",
            hosts=("api.together.ai", "api.together.xyz"),
            chat_path="/v1",
            keys_at="https://api.together.ai/settings/api-keys",
        ),
        HostedService(
            name="fireworks",
            rows=Target(
                name="fireworks",
                min_rows=3,
                max_rows=3_000_000,
                has_row_weights=True,
                has_thoughts=True,
                refuses_special_tokens=False,
                max_images=10,
            ),
            key_variable="FIREWORKS_API_KEY",
            api="fireworks",
            url="https://api.fireworks.ai",
            url_variable="FIREWORKS_BASE_URL",
            hosts=("api.fireworks.ai",),
            chat_path="/inference/v1",
            keys_at="https://app.fireworks.ai/settings/users/api-keys",
        ),
    )
}
"""The services by name."""
_TRL = Target(
    name="trl",
    shapes=(
        Shape.CHAT,
        Shape.JUDGED,
        Shape.COMPLETION,
        Shape.CHOSEN,
        Shape.START,
        Shape.TOKENS,
        Shape.TEXT,
    ),
    arguments="object",
    has_message_weights=False,
    takes_extra_keys=True,
    has_thoughts=True,
    refuses_special_tokens=False,
)
TARGETS = {target.name: target for target in (*(service.rows for service in HOSTED.values()), _TRL)}
"""The targets by name."""


def target_named(name: str) -> Target:
    """Return the target of this name.

    Raises:
        RequestError: It does not exist; the hint lists the targets.
    """
    if name not in TARGETS:
        raise RequestError(f"no target {name!r}", hint=f"targets: {', '.join(TARGETS)}")
    return TARGETS[name]
