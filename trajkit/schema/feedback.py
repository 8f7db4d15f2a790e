"""Feedback on an episode or on one step: a number, a boolean, a comment or a demonstration."""

from __future__ import annotations

import struct
from enum import StrEnum

from trajkit.schema.base import Json, Model, Name, Text, UtcTime

ABANDONED_TAG = "trajkit.abandoned"
"""Tag of the comment that marks an episode as abandoned; its value is the reason."""


class FeedbackKind(StrEnum):
    """The type of the value."""

    FLOAT = "float"
    BOOLEAN = "boolean"
    COMMENT = "comment"
    DEMONSTRATION = "demonstration"


class MetricLevel(StrEnum):
    """Whether a metric is about an episode or about an inference."""

    EPISODE = "episode"
    INFERENCE = "inference"


class Feedback(Model):
    """Feedback as it was logged. In the metrics, the latest feedback on a target counts."""

    feedback_id: Name
    """UUIDv7 of the feedback; the largest id is the latest."""
    episode_id: Name
    """The episode, or the episode of the step."""
    inference_id: Name | None = None
    """The inference of the step; None for feedback on the whole episode."""
    kind: FeedbackKind
    """The type of the value."""
    metric_name: Name
    """Name of the metric; `comment` or `demonstration` for feedback of these kinds."""
    value: Json
    """A number, a boolean, a text, or the demonstrated answer."""
    tags: dict[str, Text] = {}
    """Tags of the feedback."""
    created_at: UtcTime
    """The time of the feedback, from its id."""


def single_precision(value: float) -> float:
    """Round a number to 32 bits and return the shortest decimal that denotes the result.

    TensorZero stores float metrics with 32 bits in ClickHouse and with 64 bits in Postgres. trajkit reads
    both as 32-bit values in their shortest decimal form, so that a logged 0.7 is 0.7.
    """
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    for digits in range(6, 10):
        text = f"{rounded:.{digits}g}"
        if struct.unpack("<f", struct.pack("<f", float(text)))[0] == rounded:
            return float(text)
    return float(rounded)
