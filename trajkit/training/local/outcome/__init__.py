"""The results of a training: answers, model card, loss page."""

__all__ = ["answer", "finish", "page"]
