"""Prompts rendered from templates as the gateway renders them."""
