"""Apply tokenizers and chat templates to messages."""

__all__ = ["sampled", "tokenizer"]
