"""Run the shards of a job: in local processes, on Ray, or as a job array."""

__all__ = ["engine"]
