"""What a tokenizer and a chat template do to messages."""

__all__ = ["sampled", "tokenizer"]
