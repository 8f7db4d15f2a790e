"""Fine-tuning at a service, over the network."""

__all__ = ["answer", "chat", "openai", "prepare", "remote", "service"]
