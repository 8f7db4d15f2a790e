"""Reading TensorZero: its databases stream a few tables, and one assembly in DuckDB makes episodes of them."""
