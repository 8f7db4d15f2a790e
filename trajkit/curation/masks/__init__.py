"""Leave out what should not be learned: rules and the function that masks."""

__all__ = ["function", "mask"]
