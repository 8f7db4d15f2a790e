"""TensorZero's ClickHouse."""
