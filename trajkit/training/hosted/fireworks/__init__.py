"""Fine-tuning at Fireworks."""
