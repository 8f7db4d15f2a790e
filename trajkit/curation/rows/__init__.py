"""Training rows: what the steps of a store teach, as lines of somebody's training file."""
