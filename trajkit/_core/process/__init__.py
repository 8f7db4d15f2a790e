"""Manage a process: its arguments, its memory, signals, and closing what it opened."""

__all__ = ["arguments", "closing", "loop", "memory"]
