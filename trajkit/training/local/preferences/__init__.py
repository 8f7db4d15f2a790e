"""Train on preference pairs: recipe, tokens, losses."""

__all__ = ["recipe"]
