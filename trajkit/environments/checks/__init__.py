"""The contract of an environment as checks that run against it."""
