"""What a training leaves: answer, model card, loss page."""

__all__ = ["answer", "finish", "loss_page"]
