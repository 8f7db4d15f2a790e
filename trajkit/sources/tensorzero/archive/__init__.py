"""A TensorZero database as a folder of Parquet: written from a database, and read in its place."""

__all__ = ["copying", "layout", "manifest", "origin", "verify"]
