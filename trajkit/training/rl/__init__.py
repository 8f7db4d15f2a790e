"""Reinforcement learning on this machine: a model plays, and learns from what its actions brought."""

__all__ = ["prepare", "recipe", "tinker"]
