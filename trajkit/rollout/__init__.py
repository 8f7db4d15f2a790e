"""Play seeded episodes of an environment with a policy, and keep what happened."""
