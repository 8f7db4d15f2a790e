"""The nouns as JSON Schema, for programs that are not written in Python."""

from __future__ import annotations

from typing import Any

from trajkit.schema.base import Model
from trajkit.schema.content import Message
from trajkit.schema.episode import Episode, Transition
from trajkit.schema.experience import Experience
from trajkit.schema.feedback import Feedback
from trajkit.schema.manifest import STORE_VERSION, Manifest

NOUNS: dict[str, type[Model]] = {
    "message": Message,
    "transition": Transition,
    "episode": Episode,
    "feedback": Feedback,
    "manifest": Manifest,
    "experience": Experience,
}
"""The models that have a schema of their own, by the name of its file."""


def json_schema(noun: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of values that trajkit accepts as this noun; it writes only such.

    Args:
        noun: A key of `NOUNS`.

    Raises:
        KeyError: There is no such noun.
    """
    described = NOUNS[noun].model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:trajkit:v{STORE_VERSION}:{noun}",
        **described,
    }
