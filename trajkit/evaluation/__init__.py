"""Compare variants of an agent on held-out seeds, and report how they did."""
