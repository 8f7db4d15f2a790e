"""Play recorded episodes again and compare."""
