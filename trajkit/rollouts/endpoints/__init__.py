"""Play through an OpenAI-compatible address."""
