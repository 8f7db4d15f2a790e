"""Reading TensorZero: its databases stream a few tables; one assembly in DuckDB makes episodes of them."""
