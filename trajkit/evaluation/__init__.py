"""Compare variants of an agent on held-out seeds, and report how they did."""

__all__ = [
    "answering",
    "estimates",
    "evaluation",
    "exposure",
    "models",
    "prompts",
    "report",
    "reports",
    "require",
]
