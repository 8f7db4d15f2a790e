"""Compare two stores for episodes, worlds and prompts that they share."""
