"""Train on preference pairs: recipe, tokens, losses."""
