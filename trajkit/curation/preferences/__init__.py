"""Preference pairs: which answers to compare, and their rows."""
