"""Store episodes as columns on disk: write, open, verify and query a store."""
