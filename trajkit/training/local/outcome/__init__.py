"""What a training leaves: answer, model card, loss page."""

__all__ = ["answer", "finish", "page"]
