"""Record played episodes: journal, rows of a store, summary."""

__all__ = ["deliver", "lines", "record", "summary"]
