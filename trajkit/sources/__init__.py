"""Where episodes come from: databases, archives, local rollouts."""

__all__ = [
    "access",
    "calls",
    "catalog",
    "files",
    "open",
    "otel",
    "request",
    "shards",
    "source",
    "tensorzero",
    "wish",
]
