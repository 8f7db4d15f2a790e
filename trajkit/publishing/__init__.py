"""Stores and models on the Hugging Face Hub: written as it wants them, sent whole or not at all, and back."""
