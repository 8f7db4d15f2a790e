"""The description of a database, counted by the database itself."""

__all__ = ["models"]
