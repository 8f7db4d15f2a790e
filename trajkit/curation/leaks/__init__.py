"""Compare two stores for episodes, worlds and prompts that they share."""

__all__ = ["leak", "report", "texts"]
