"""Run attempts side by side within limits of number, time and cost."""

__all__ = ["calling", "costs", "limits", "runner"]
