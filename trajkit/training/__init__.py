"""Training jobs, on this machine or at a service."""

__all__ = ["hosted", "job", "jobs", "local", "origin", "question", "rl", "runs"]
