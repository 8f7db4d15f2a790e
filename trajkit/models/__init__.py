"""Language models of this machine: load, generate, and serve them behind an OpenAI-compatible address."""

__all__ = ["generation", "random_model", "serving"]
