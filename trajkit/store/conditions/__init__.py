"""The language of `--where`: tokens, syntax, names, and the SQL that comes of them."""

__all__ = ["expression", "nameable", "names"]
