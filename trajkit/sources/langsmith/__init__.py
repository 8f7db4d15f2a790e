"""LangSmith: its bulk export and runs as its client gives them."""
