"""One page about logs that somebody has just been handed."""

__all__ = ["measure", "model", "page"]
