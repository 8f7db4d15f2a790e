"""Find and replace what must not be shared, column by column."""

__all__ = ["column", "gate", "pii"]
