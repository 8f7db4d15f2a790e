"""Start, watch and resume the process that trains."""
