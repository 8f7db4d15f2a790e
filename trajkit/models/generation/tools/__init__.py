"""Tool calls in generated text: styles, parsing and the grammar that keeps them valid."""
