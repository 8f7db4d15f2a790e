"""The prompts that a policy sends: of a variant or the user's own, cut to fit."""

__all__ = ["variant"]
