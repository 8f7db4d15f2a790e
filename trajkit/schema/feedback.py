"""How it went: a number, a yes or no, a remark, or a better answer, about an episode or about one step."""

from __future__ import annotations

import struct
from enum import StrEnum

from trajkit.schema.base import Json, Model, Name, Text, UtcTime

ABANDONED_TAG = "trajkit.abandoned"
"""Tag of the comment by which a rollout says that an episode is half-played; its value is the reason."""


class FeedbackKind(StrEnum):
    """What sort of value the feedback holds."""

    FLOAT = "float"
    BOOLEAN = "boolean"
    COMMENT = "comment"
    DEMONSTRATION = "demonstration"


class MetricLevel(StrEnum):
    """What a metric is about."""

    EPISODE = "episode"
    INFERENCE = "inference"


class Feedback(Model):
    """One piece of feedback as it was logged; a later one on the same target replaces it in the metrics."""

    feedback_id: Name
    """UUIDv7 of the feedback: its order decides which is the latest."""
    episode_id: Name
    """The episode that it is about, or that holds the step it is about."""
    inference_id: Name | None = None
    """The step that it is about; None when it is about the whole episode."""
    kind: FeedbackKind
    """What sort of value it is."""
    metric_name: Name
    """Name of the metric; `comment` and `demonstration` for those kinds."""
    value: Json
    """Number, boolean, text, or the demonstrated answer."""
    tags: dict[str, Text] = {}
    """Tags logged with it."""
    created_at: UtcTime
    """When it was logged, from its id."""


def single_precision(value: float) -> float:
    """The shortest decimal that names the same 32-bit float.

    TensorZero keeps float metrics in 32 bits on ClickHouse and in 64 on Postgres. trajkit gives both the same
    meaning: the 32-bit value, written as the shortest decimal that names it, so that a logged 0.7 is 0.7.
    """
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    for digits in range(6, 10):
        text = f"{rounded:.{digits}g}"
        if struct.unpack("<f", struct.pack("<f", float(text)))[0] == rounded:
            return float(text)
    return float(rounded)
