"""Leave out what should not be learned, by rules or because another function answered."""

__all__ = ["mask"]
