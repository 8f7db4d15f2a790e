"""Fine-tuning on this machine, with transformers and peft."""
