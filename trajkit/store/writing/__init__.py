"""Write the parts of a store: rows, spooling to disk, and checks on the way."""

__all__ = ["part", "spool"]
