"""Fine-tuning at OpenAI and services with its API."""

__all__ = ["client"]
