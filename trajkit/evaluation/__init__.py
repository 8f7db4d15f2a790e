"""Compare variants of an agent on held-out seeds, and report how they did."""

__all__ = [
    "answering",
    "estimates",
    "evaluation",
    "exposure",
    "prompts",
    "report",
    "reports",
    "require",
]
