"""Play seeded episodes of an environment with a policy, and record them."""

__all__ = [
    "agent",
    "agents",
    "cast",
    "decoding",
    "endpoints",
    "faults",
    "gateway",
    "gateway_policy",
    "local",
    "options",
    "own_prompt",
    "plan",
    "policies",
    "preparation",
    "prompts",
    "records",
    "running",
    "seeds",
    "session",
    "shards",
]
