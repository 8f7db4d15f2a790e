"""Write the parts of a store: rows, spooling to disk, and checks."""

__all__ = ["part", "spool"]
