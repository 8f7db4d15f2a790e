"""Play with a model of this machine, in lock step."""

__all__ = ["endpoint", "lockstep", "player", "policy"]
