"""Language models of this machine: what is asked, what they answer, many at once."""

__all__ = ["ask", "generate", "located", "model", "row", "weights"]
