"""Read the calls that a client made: chat, responses, streams."""
