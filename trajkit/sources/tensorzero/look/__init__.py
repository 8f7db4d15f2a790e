"""What a database holds, counted by the database itself."""

__all__ = ["models"]
