"""Choose episodes: by condition, group, split or content."""

__all__ = ["control", "dedupe", "groups", "pool", "select", "split"]
