"""What is installed, configured and reachable here, and how to fix the rest."""
