"""One client for every TensorZero database: it streams the tables of `tables.py` as Arrow batches."""

__all__ = ["database", "url"]
