"""Fine-tuning at a service, over the network."""
