"""Helicone: its exported requests."""
