"""Play behind a TensorZero gateway: calls, rows and marks in its database."""
