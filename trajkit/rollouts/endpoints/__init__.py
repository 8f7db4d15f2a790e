"""Play through an OpenAI-compatible address."""

__all__ = ["endpoint"]
