"""Prompts rendered from templates as the gateway renders them."""

__all__ = ["config", "engine", "files", "prompt"]
