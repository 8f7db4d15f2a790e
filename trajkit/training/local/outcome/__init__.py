"""What a training leaves: answer, model card, loss page."""
