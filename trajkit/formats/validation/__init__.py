"""Check a training file before a service refuses it, or a model learns the wrong thing from it."""

__all__ = ["chat_rules", "file", "finding", "loss", "prices", "shape", "target", "tokens"]
