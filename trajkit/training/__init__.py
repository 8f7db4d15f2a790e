"""Training jobs, on this machine or at a service."""
