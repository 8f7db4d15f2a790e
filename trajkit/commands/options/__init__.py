"""Options that several commands share, and the types of options."""

__all__ = ["flags"]
