"""Training rows: the learned steps of a store as lines of a training file."""
