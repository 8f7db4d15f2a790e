"""Fine-tuning at Together."""
