"""Fine-tuning at OpenAI and services with its API."""
