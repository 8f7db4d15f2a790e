"""Recipes: several commands as one YAML file, run step by step into a folder of their own."""
