"""What trains: on this machine, or a service."""
