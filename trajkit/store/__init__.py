"""Store episodes as columns on disk: write, open, verify and query a store."""

__all__ = [
    "arrow",
    "catalog",
    "chosen",
    "conditions",
    "damage",
    "dataset",
    "digest",
    "engine",
    "layout",
    "notebook",
    "query",
    "reader",
    "summary",
    "tally",
    "view",
    "writer",
    "writing",
]
