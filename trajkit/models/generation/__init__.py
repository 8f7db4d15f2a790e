"""Local language models: requests, answers, and the generation of many answers at once."""

__all__ = ["ask", "generate", "located", "model", "row", "weights"]
