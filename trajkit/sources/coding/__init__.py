"""Sources: the session files of coding agents, one module per program."""
