"""Names for tuned models: variants in a gateway's configuration, and who was trained on what."""
