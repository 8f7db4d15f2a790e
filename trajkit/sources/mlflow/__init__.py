"""Traces of MLflow: its tracking store, and the API of its server."""
