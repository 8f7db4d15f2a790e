"""Training rows: the learned steps of a store as lines of a training file."""

__all__ = ["conversion", "file", "request", "tally", "writers"]
