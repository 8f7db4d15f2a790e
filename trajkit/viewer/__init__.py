"""A page to look at the episodes of stores, in a local browser."""

__all__ = ["shelf", "snapshot", "viewer"]
