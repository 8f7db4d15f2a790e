"""What belongs to a process: its arguments, its memory, closing what it opened."""

__all__ = ["arguments", "closing", "loop", "memory"]
