"""Spend logs of the LiteLLM proxy."""
