"""From rows to batches of tokens: templates, packing, weights."""
