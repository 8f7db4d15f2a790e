"""A weight or an advantage for each step."""

__all__ = ["spread", "weight"]
