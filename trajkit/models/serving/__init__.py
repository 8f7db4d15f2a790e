"""Local models behind an OpenAI-compatible address."""

__all__ = ["chat_answer", "chat_request", "served_models", "server"]
