"""Where episodes come from: databases, archives, local rollouts."""
