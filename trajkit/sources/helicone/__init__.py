"""Helicone: its exported requests, so that they are not lost with it."""
