"""Commands that make a store from a store; they count the episodes that leave, by reason."""
