"""Write down what was played: journal, rows of a store, summary."""

__all__ = ["deliver", "lines", "record", "summary"]
