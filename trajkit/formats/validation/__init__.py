"""Check a training file before a service refuses it, or a model learns the wrong thing from it."""
