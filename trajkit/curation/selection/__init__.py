"""Choose episodes: by condition, group, split or content."""
