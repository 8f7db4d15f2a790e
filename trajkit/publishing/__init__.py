"""Stores and models on the Hugging Face Hub: written as it wants them, sent whole or not at all, and back."""

__all__ = [
    "card",
    "facts",
    "file_scan",
    "files",
    "hub",
    "model",
    "pull",
    "push",
    "record",
]
