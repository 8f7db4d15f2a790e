"""Describe the content of a store: numbers, intervals, charts and pages."""

__all__ = ["chart", "html_page", "intervals", "model", "page", "read", "stats", "text"]
