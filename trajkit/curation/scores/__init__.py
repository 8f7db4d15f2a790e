"""Score steps with a model or a function."""

__all__ = ["score", "scorer"]
