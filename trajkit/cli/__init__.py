"""The command line: read options, one library call, print."""

__all__ = ["main"]
