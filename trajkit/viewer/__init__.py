"""A page to look at the episodes of stores, in a browser of this machine."""

__all__ = ["shelf", "snapshot", "viewer"]
