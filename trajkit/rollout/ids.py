"""Ids of episodes and of inferences that no gateway makes."""

from trajkit._ids import time_of, uuid7, uuid7_by_clock

__all__ = ["time_of", "uuid7", "uuid7_by_clock"]
