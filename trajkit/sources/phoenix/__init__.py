"""Traces of Phoenix: its SQLite database, and the API of its server."""
