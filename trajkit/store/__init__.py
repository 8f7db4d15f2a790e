"""Episodes as columns on disk: write a store, open it, prove it, ask it."""
