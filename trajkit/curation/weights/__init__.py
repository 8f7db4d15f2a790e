"""A weight or an advantage for each step."""
