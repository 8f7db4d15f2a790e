"""Sources of episodes: databases, archives, files of other tools, local stores."""

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
