"""Preference pairs: which answers to compare, and their rows."""

__all__ = ["cut", "leak", "pairs"]
