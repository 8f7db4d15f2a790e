"""Start, watch and resume the process that trains."""

__all__ = ["launch", "replicas"]
