"""The report of an evaluation: text, Markdown, page and charts."""

__all__ = ["model", "object", "text"]
