"""Models of this machine behind an OpenAI-compatible address."""
