"""LangSmith: its bulk export, and runs from its client."""
