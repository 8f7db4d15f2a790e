"""Score steps with a model or a function."""
