"""The commands in Python: a function for each, with the same name and the same options."""

__all__ = ["catalog", "completion", "options"]
