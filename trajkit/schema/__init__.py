"""The nouns: what a message, a transition, an episode, feedback and a manifest are."""

from trajkit.schema.base import Model
from trajkit.schema.content import (
    Block,
    FileBlock,
    Message,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    message,
)
from trajkit.schema.episode import Episode, MetricValue, Outcome, Purpose, Transition, kept
from trajkit.schema.feedback import Feedback, FeedbackKind, MetricLevel, single_precision
from trajkit.schema.manifest import (
    STORE_VERSION,
    Counts,
    Left,
    LineageEntry,
    Manifest,
    Metric,
    Part,
    Published,
)

__all__ = [
    "STORE_VERSION",
    "Block",
    "Counts",
    "Episode",
    "Feedback",
    "FeedbackKind",
    "FileBlock",
    "Left",
    "LineageEntry",
    "Manifest",
    "Message",
    "Metric",
    "MetricLevel",
    "MetricValue",
    "Model",
    "Outcome",
    "Part",
    "Published",
    "Purpose",
    "Role",
    "TextBlock",
    "ThoughtBlock",
    "ToolCallBlock",
    "ToolResultBlock",
    "Transition",
    "UnknownBlock",
    "kept",
    "message",
    "single_precision",
]
