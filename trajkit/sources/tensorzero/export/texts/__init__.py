"""Put together the text of a step: what was sent, what came back, what continues."""
