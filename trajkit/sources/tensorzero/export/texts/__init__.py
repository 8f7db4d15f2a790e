"""Assemble the text of a step: its prompt, its answer, and the prompt that it continues."""
