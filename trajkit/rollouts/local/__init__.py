"""Play with local models, in lock step."""

__all__ = ["endpoint", "lockstep", "player", "policy"]
