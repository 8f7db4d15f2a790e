"""Spans of traces, and the sessions that they make."""
