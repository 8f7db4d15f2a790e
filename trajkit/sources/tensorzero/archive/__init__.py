"""A TensorZero database as a folder of Parquet: written from a database, and read in its place."""
