"""Langfuse: its blob storage export, its API and its tables in ClickHouse."""
