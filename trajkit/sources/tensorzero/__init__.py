"""Read TensorZero: each database streams a few tables, and one assembly in DuckDB makes episodes of them."""

__all__ = ["archive", "connect", "export", "look", "render"]
