"""Register tuned models as variants in a gateway's configuration, and record their training data."""
