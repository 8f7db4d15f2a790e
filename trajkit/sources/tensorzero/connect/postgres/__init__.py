"""TensorZero's Postgres."""
