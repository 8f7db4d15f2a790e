"""What is installed, configured and reachable here, and what to do about the rest."""
