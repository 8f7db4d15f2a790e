"""The models that `evaluate` compares, and the prompts they play."""
