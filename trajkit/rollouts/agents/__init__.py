"""Players that are not a policy of trajkit: an agent's code, a demonstration, a person."""

__all__ = ["load", "models"]
