"""Find and replace what must not be shared, column by column."""
