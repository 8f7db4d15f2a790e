"""Read episodes from files of other tools: recognise the format, and read one document at a time."""

__all__ = ["found", "importing", "intake", "known", "sample"]
