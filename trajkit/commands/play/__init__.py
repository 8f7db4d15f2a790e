"""What `rollout`, `evaluate` and `rl` share: the player and its server."""
