"""Run the shards of a job: in processes of this machine, on Ray, or as a job array."""

__all__ = ["engine"]
