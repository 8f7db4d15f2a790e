"""Play seeded episodes of an environment with a policy, and record what happened."""
