"""Local training, with transformers and peft."""

__all__ = ["base_model", "outcome", "preferences", "prepare", "recipe", "running", "settings"]
