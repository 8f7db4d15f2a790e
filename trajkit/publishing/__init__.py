"""Push stores and models to the Hugging Face Hub, in its formats and all or nothing, and pull them."""

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
