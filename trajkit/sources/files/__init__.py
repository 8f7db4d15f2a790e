"""Episodes from files that other tools wrote: which format they are, read one document at a time."""

__all__ = ["found", "importing", "intake", "known", "sample"]
