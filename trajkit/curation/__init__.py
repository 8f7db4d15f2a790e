"""Choosing what is worth learning: verbs that take a store and give a store, with a tally of what left."""
