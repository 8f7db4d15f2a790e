"""From a database to a store: look, choose, pull, assemble, write; `export.py` is the sequence."""

__all__ = ["after", "prompts", "whole"]
