"""The language of `--where`: tokens, syntax, names, and the SQL made from them."""

__all__ = ["expression", "nameable", "names"]
