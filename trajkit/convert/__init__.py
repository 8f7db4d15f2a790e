"""Training files from episodes: which steps are learned, as which lines, and what was left out."""
