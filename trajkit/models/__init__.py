"""Local language models: load them, generate, and serve them behind an OpenAI-compatible address."""

__all__ = ["generation", "random_model", "serving"]
