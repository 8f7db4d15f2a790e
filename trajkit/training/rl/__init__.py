"""Reinforcement learning: a model plays, and learns from the results of its actions."""

__all__ = ["prepare", "recipe", "tinker"]
