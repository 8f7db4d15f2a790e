"""Play behind a TensorZero gateway: calls, rows and marks in its database."""

__all__ = ["paid", "rows", "venue"]
