"""Estimates with intervals: resampling, paired comparison, cost per success."""

__all__ = ["compare"]
