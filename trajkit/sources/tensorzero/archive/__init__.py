"""A TensorZero database as a folder of Parquet: written from a database, and read instead of it."""

__all__ = ["copying", "layout", "manifest", "origin", "verify"]
