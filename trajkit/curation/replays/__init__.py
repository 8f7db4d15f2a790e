"""Play recorded episodes again and compare."""

__all__ = ["replay"]
