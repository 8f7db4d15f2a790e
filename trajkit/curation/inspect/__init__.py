"""One page about logs that are new to the reader."""

__all__ = ["measure", "model"]
