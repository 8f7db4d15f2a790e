"""Who a training file is for, and what they take: one table of limits, each from the page it is named after.

Sources, all read 2026-11: OpenAI's fine-tuning and vision guides and its published row schema; Azure OpenAI's
fine-tuning page; the `together` SDK 3.1.1 (`lib/constants.py`); Fireworks' dataset page; Nebius' fine-tuning
page; TRL 1.16.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from trajkit.errors import RequestError
from trajkit.formats.openai_rules import MIN_ROWS

MB = 1_000_000


class Bom(StrEnum):
    """Whether a file begins with the three bytes of a UTF-8 byte order mark."""

    REFUSED = "refused"
    WANTED = "wanted"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a service or a trainer takes."""

    name: str
    """What the user calls it."""
    min_rows: int = 1
    """A file with fewer rows is refused."""
    max_rows: int | None = None
    """A file with more is refused; None when nothing is said."""
    max_bytes: int | None = None
    """A larger file is refused; None when nothing is said."""
    bom: Bom = Bom.REFUSED
    """What it does with a byte order mark."""
    arguments: Literal["text", "object"] = "text"
    """How the arguments of a tool call are written."""
    has_message_weights: bool = True
    """Whether `weight` of an assistant message, 0 or 1, is heard."""
    has_row_weights: bool = False
    """Whether a row may have a `weight` of its own."""
    takes_extra_keys: bool = False
    """Whether keys that it does not know are passed over instead of refused."""
    must_alternate: bool = False
    """Whether user and assistant must take turns."""
    has_thoughts: bool = False
    """Whether `reasoning_content` of an assistant message is taken."""
    refuses_special_tokens: bool = True
    """Whether a text with a token such as <|im_start|> is refused."""
    max_images: int | None = None
    """Most images in a row; None when it takes none."""
    max_image_rows: int | None = None
    """Most rows with images."""
    suffix_has_dots: bool = True
    """Whether the suffix of the tuned model's name may have dots."""

    @property
    def needs_call_ids(self) -> bool:
        """Whether every call and its result have an id. Chat templates pair them by their order."""
        return self.arguments == "text"


# 512 MB at once, and more in parts, as `trajkit sft openai` sends it
_OPENAI = Target(name="openai", min_rows=MIN_ROWS, max_bytes=8_000 * MB, max_images=10, max_image_rows=50_000)
TARGETS = {
    target.name: target
    for target in (
        _OPENAI,
        Target(
            name="azure",
            min_rows=MIN_ROWS,
            max_bytes=512 * MB,
            bom=Bom.WANTED,
            max_images=64,
            max_image_rows=50_000,
            suffix_has_dots=False,
        ),
        Target(name="nebius", max_bytes=5_000 * MB, has_message_weights=False),
        Target(
            name="together",
            max_bytes=50_100 * MB,
            must_alternate=True,
            has_thoughts=True,
            refuses_special_tokens=False,
            max_images=10,
        ),
        Target(
            name="fireworks",
            min_rows=3,
            max_rows=3_000_000,
            has_row_weights=True,
            has_thoughts=True,
            refuses_special_tokens=False,
            max_images=10,
        ),
        Target(
            name="trl",
            arguments="object",
            has_message_weights=False,
            takes_extra_keys=True,
            has_thoughts=True,
            refuses_special_tokens=False,
        ),
    )
}
"""By name."""


def target_named(name: str) -> Target:
    """The target of this name.

    Raises:
        RequestError: There is none; the hint lists them.
    """
    if name not in TARGETS:
        raise RequestError(f"no target {name!r}", hint=f"targets: {', '.join(TARGETS)}")
    return TARGETS[name]
