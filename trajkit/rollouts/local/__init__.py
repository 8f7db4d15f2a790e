"""Play with a model of this machine, in lock step."""
