"""Players that are not a policy of trajkit: an agent's code, a person."""

__all__ = ["load", "turn"]
